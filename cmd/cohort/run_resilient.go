package main

import (
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// askToGoOn makes the job continue after a rank's failure if the command line or a rank requests it. Ranks
// get the path of a folder in which cohort.Init creates a file if Config.Resilient is set.
func (r *runOptions) askToGoOn(config *spawn.Config, keeper *spawn.Keeper) (end func(), err error) {
	folder, err := os.MkdirTemp("", "cohort-run-*") // for this user alone
	if err != nil {
		return nil, err
	}
	keeper.Folder(folder)
	if config.Env == nil {
		config.Env = os.Environ()
	}
	config.Env = append(config.Env, "COHORT_RUN_DIR="+folder)
	config.Resilient = func() bool {
		_, err := os.Stat(filepath.Join(folder, "resilient"))
		return r.goOn || err == nil
	}
	config.Aborted = func() (rank, status int, ok bool) { return spawn.AbortIn(folder) }
	return func() { os.RemoveAll(folder) }, nil
}
