package cohort

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestBackendsReportsWhatTheLaunchAllows(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		want string // the best that Init takes, and all that are available but for mpi, which the machine may not have
	}{
		{"alone", nil, "local"},
		{"cohort run, shm", []string{"COHORT_BACKEND=shm", "COHORT_RANK=1", "COHORT_SIZE=2", "COHORT_JOB=x"}, "shm"},
		{"a scheduler's, shm", []string{"COHORT_RANK=1", "COHORT_SIZE=2", "COHORT_JOB=x"}, "shm"},
		{"tcp", []string{"COHORT_RANK=1", "COHORT_SIZE=2", "COHORT_JOB=x", "COHORT_TCP_COORDINATOR=a:1", "COHORT_SECRET_FILE=f"}, "shm tcp"},
		{"mpiexec", []string{"PMI_SIZE=2", "PMI_RANK=0", "PMI_FD=7"}, ""},
		{"mpiexec of one", []string{"PMI_SIZE=1", "PMI_RANK=0", "PMI_FD=7"}, "local"},
	}
	for _, tt := range tests {
		env := envOf(tt.env...)
		s, err := resolve(nil, env)
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		for _, b := range []string{"local", "shm", "tcp"} {
			_, out := missing[b]
			err := s.available(b, env)
			switch {
			case out && !errors.Is(err, ErrNotSupported):
				t.Errorf("%s: %s is not in this program, and the error is %v", tt.name, b, err)
			case out && strings.Contains(tt.want, b):
				there = append(there, b) // elsewhere
			case err == nil:
				there = append(there, b)
			case !out && !errors.Is(err, ErrInit):
				t.Errorf("%s: %s: %v, want ErrInit", tt.name, b, err)
			}
		}
		if got := strings.Join(there, " "); got != tt.want {
			t.Errorf("%s: available are %q, want %q", tt.name, got, tt.want)
		}
	}

	// MPI, on any machine: a process of another launcher cannot use it, nor can one whose library does not exist.
	env := envOf("COHORT_RANK=1", "COHORT_SIZE=2")
	s, err := resolve(nil, env)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.available("mpi", env); !errors.Is(err, ErrInit) && !errors.Is(err, ErrNotSupported) {
		t.Errorf("mpi for one of two ranks of another launcher: %v", err)
	}
	env = envOf("COHORT_MPI_LIB=/nowhere/libmpi.so")
	if s, err = resolve(nil, env); err != nil {
		t.Fatal(err)
	}
	if err := s.available("mpi", env); !errors.Is(err, ErrNotSupported) {
		t.Errorf("mpi with a library that does not exist: %v, want ErrNotSupported", err)
	}

	all := Backends(nil)
	if !slices.IsSortedFunc(all, func(a, b BackendInfo) int { return b.Priority - a.Priority }) || len(all) != len(openers) {
		t.Errorf("Backends gives %v", all)
	}
	for _, b := range Backends(&Config{Size: -1}) {
		if !errors.Is(b.Err, ErrInit) {
			t.Errorf("with settings that make no sense %s is available: %v", b.Name, b.Err)
		}
	}
}
