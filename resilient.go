package cohort

import (
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
