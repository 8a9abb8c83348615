package cohort

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/flight"
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

// publishAbort writes the rank and the code of an Abort to files that cohort run and cohort report
// read. It ignores errors: without the files, the first rank that ends gives the job its status.
func (j *job) publishAbort(code int, env environment) {
	rank := j.world.rank
	j.recorder.Note(flight.Aborted, fmt.Sprintf("rank %d aborted the job with code %d", rank, code))
	if dir := env.get("COHORT_RUN_DIR"); dir != "" {
		_ = flight.WriteFile(filepath.Join(dir, "aborted"), fmt.Appendf(nil, "%d %d\n", rank, code))
	}
}
