package cohort

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/flight"
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

// publishAbort leaves the rank and the status of an Abort where cohort run and the flight recorder's
// report find them. It is best effort: without it, the first rank that ends gives the job its status.
func (j *job) publishAbort(code int, env environment) {
	rank := j.world.rank
	j.recorder.Note(flight.Aborted, fmt.Sprintf("rank %d aborted the job with code %d", rank, code))
	if dir := env.get("COHORT_RUN_DIR"); dir != "" {
		_ = flight.WriteFile(filepath.Join(dir, "aborted"), fmt.Appendf(nil, "%d %d\n", rank, code))
	}
}
