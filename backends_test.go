package cohort

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
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
		{"mpiexec", []string{"PMI_SIZE=2", "PMI_RANK=0", "PMI_FD=7"}, "shm tcp"},
		{"mpiexec of one", []string{"PMI_SIZE=1", "PMI_RANK=0", "PMI_FD=7"}, "local shm tcp"},
	}
	for _, tt := range tests {
		env := envOf(tt.env...)
		s, err := resolve(nil, env)
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		for _, b := range []string{"local", "shm", "tcp"} {
			out := lookup(b).missing != ""
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
	if !slices.IsSortedFunc(all, func(a, b BackendInfo) int { return b.Priority - a.Priority }) || len(all) != len(backends) {
		t.Errorf("Backends gives %v", all)
	}
	for _, b := range Backends(&Config{Size: -1}) {
		if !errors.Is(b.Err, ErrInit) {
			t.Errorf("with settings that make no sense %s is available: %v", b.Name, b.Err)
		}
	}
}

// unregister removes a backend that the test has registered.
func unregister(t *testing.T, name string) {
	t.Cleanup(func() {
		backendsMu.Lock()
		defer backendsMu.Unlock()
		delete(backends, name)
	})
}

// A registered backend is selected by its name, gets the settings, and is never detected.
func TestRegisteredBackendIsOpened(t *testing.T) {
	var got backend.Config
	Register("registered", func(_ context.Context, cfg backend.Config) (backend.Comm, error) {
		got = cfg
		return local.New(1)[0], nil
	})
	unregister(t, "registered")
	withEnv(t, "COHORT_BACKEND=registered", "COHORT_RANK=3", "COHORT_SIZE=5", "COHORT_JOB=j", "COHORT_TIMEOUT=4s",
		"COHORT_HEARTBEAT=2s", "COHORT_JOIN_TIMEOUT=9s", "COHORT_CHECK=1", "COHORT_DETERMINISTIC=1")
	w, err := Init(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	want := backend.Config{Rank: 3, Size: 5, Job: "j", Timeout: 4 * time.Second, Heartbeat: 2 * time.Second, JoinTimeout: 9 * time.Second,
		Check: true, Deterministic: true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the opener got %+v, want %+v", got, want)
	}
	all := Backends(nil)
	if last := all[len(all)-1]; last != (BackendInfo{Name: "registered", Chosen: true}) {
		t.Errorf("Backends ends with %+v", last)
	}
	withEnv(t)
	if _, err := Init(t.Context(), &Config{Backend: "udp"}); err == nil || !strings.Contains(err.Error(), "registered, or import the package") {
		t.Errorf("the error for an unknown name does not list the registered one: %v", err)
	}
}

func TestRegisterPanicsForWrongArguments(t *testing.T) {
	open := func(context.Context, backend.Config) (backend.Comm, error) { return nil, nil }
	Register("mine", open)
	unregister(t, "mine")
	for _, c := range []struct {
		name string
		open backend.Opener
	}{{"other", nil}, {"", open}, {"auto", open}, {"shm", open}, {"mpi", open}, {"mine", open}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register(%q, %p) does not panic", c.name, c.open)
				}
			}()
			Register(c.name, c.open)
		}()
	}
}
