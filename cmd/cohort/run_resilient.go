package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// askToGoOn makes the job continue after a rank's failure if the command line or a rank requests it. Ranks
// get the path of a folder in which cohort.Init creates a file if Config.Resilient is set.
func (r *runOptions) askToGoOn(config *spawn.Config, keeper *spawn.Keeper) (end func(), err error) {
	folder, err := tempFolder(keeper)
	if err != nil {
		return nil, err
	}
	if config.Env == nil {
		config.Env = os.Environ()
	}
	config.Env, config.Folder = append(config.Env, "COHORT_RUN_DIR="+folder), folder
	config.Resilient = func() bool {
		_, err := os.Stat(filepath.Join(folder, "resilient"))
		return r.goOn || err == nil
	}
	return func() { os.RemoveAll(folder) }, nil
}

// tempFolder makes a folder for this user alone, which the keeper removes.
func tempFolder(k *spawn.Keeper) (string, error) {
	folder, err := os.MkdirTemp("", "cohort-run-*")
	if err != nil {
		return "", fmt.Errorf("no folder for temporary files: %w; set TMPDIR to a folder that this user can write to", err)
	}
	k.Folder(folder)
	return folder, nil
}
