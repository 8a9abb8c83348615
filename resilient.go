package cohort

import (
	"os"
	"path/filepath"
)

// announce tells cohort run that this program goes on after losses, by a file in the folder that it
// has made for the job.
func (s *settings) announce(backend string, env environment) error {
	dir := env.get("COHORT_RUN_DIR")
	if !s.Resilient || dir == "" || backend != "shm" && backend != "tcp" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "resilient"), nil, 0o600); err != nil {
		return initFault("telling the launcher that the program goes on after losses (COHORT_RUN_DIR): %v", err)
	}
	return nil
}
