package cohort

import (
	"errors"
	"testing"
)

// The variables a program joins a job by: whatever they say, the settings make sense, or the error
// is ErrInit.
func FuzzSettings(f *testing.F) {
	f.Add("shm", "1", "4", "job", "30s", "", "native", "0", "")
	f.Add("", "", "", "", "", "", "", "", "")
	f.Add("tcp", "0", "2", "j", "1h", "launcher@127.0.0.1:7", "schedule", "1", "allreduce=ring,bcast=binomial")
	f.Add("", "-1", "2", "", "-1s", ":", "both", "yes", "=")
	f.Add("mpi", "2", "2", "", "1", "x", "", "", ",")
	f.Add("", "9223372036854775807", "9223372036854775808", "", "9999999h", "", "", "", "a==b")
	f.Fuzz(func(t *testing.T, backend, rank, size, job, timeout, coordinator, collectives, check, tuning string) {
		vars := map[string]string{"COHORT_BACKEND": backend, "COHORT_RANK": rank, "COHORT_SIZE": size, "COHORT_JOB": job,
			"COHORT_TIMEOUT": timeout, "COHORT_TCP_COORDINATOR": coordinator, "COHORT_COLLECTIVES": collectives,
			"COHORT_CHECK": check, "COHORT_MPI_TUNING": tuning}
		env := environment(func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
		s, err := resolve(nil, env)
		if err != nil {
			if !errors.Is(err, ErrInit) {
				t.Fatalf("%v is no ErrInit", err)
			}
			return
		}
		if s.sized != (rank != "" && size != "") || s.sized && (s.Rank < 0 || s.Rank >= s.Size) || s.Timeout < 0 {
			t.Fatalf("rank %q, size %q, timeout %q are %+v", rank, size, timeout, s)
		}
		name, err := s.choose(env)
		if err != nil && !errors.Is(err, ErrInit) || err == nil && name == "" {
			t.Fatalf("backend %q: %q, %v", backend, name, err)
		}
	})
}
