package cohort

import (
	"fmt"
	"os"
	"path/filepath"
)

// announce reports to cohort run that this program continues after failures. It writes a file in the
// folder that cohort run has made for the job.
func (s *settings) announce(backend string, env environment) error {
	dir := env.get("COHORT_RUN_DIR")
	if !s.Resilient || dir == "" || backend == "local" || backend == "mpi" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "resilient"), nil, 0o600); err != nil {
		return initFault("cannot report Config.Resilient to the launcher (COHORT_RUN_DIR): %v", err)
	}
	return nil
}

// joins leaves a note for cohort run, until the world is closed: a process that ends before that has failed, whatever its
// status. Where the note cannot be written, cohort run goes by the status.
func (c *Comm) joins(backend string, env environment) {
	if dir := env.get("COHORT_RUN_DIR"); dir != "" && backend != "local" {
		note := filepath.Join(dir, fmt.Sprint("open-", c.Rank()))
		_ = os.WriteFile(note, nil, 0o600)
		c.base().OnClose(func() { _ = os.Remove(note) })
	}
}
