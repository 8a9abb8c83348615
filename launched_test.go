package cohort

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// Variables of rank 1 of a launch, on one node and on two.
var (
	mpirunHere  = []string{"OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=3", "OMPI_COMM_WORLD_LOCAL_RANK=1", "PMIX_NAMESPACE=prterun-n1-7@1"}
	mpirunApart = []string{"OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1", "PMIX_NAMESPACE=prterun-n1-7@1"}
	jsrunHere   = []string{"JSM_NAMESPACE_SIZE=2", "JSM_NAMESPACE_RANK=1", "JSM_NAMESPACE_LOCAL_RANK=1", "JSM_NAMESPACE_LOCAL_SIZE=2", "PMIX_NAMESPACE=2", "LSB_JOBID=88"}
	palsHere    = []string{"PALS_NRANKS=2", "PALS_RANKID=1", "PALS_LOCAL_RANKID=1", "PALS_LOCAL_SIZE=2", "PALS_APID=9f-3"}
	fluxHere    = []string{"FLUX_JOB_SIZE=2", "FLUX_TASK_RANK=1", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_NNODES=1", "FLUX_JOB_ID=f7"}
	srunApart   = []string{"SLURM_JOB_ID=47", "SLURM_STEP_ID=2", "SLURM_CLUSTER_NAME=alps", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "SLURM_LOCALID=1",
		"SLURM_NODEID=0", "SLURM_STEP_NODELIST=n[03-04]", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=2(x2)"}
)

// TestLauncherVariablesPlaceRanks shows what a launcher's variables alone make of a process: its backend, rank, job and
// meeting point, or an error that says what else to set.
func TestLauncherVariablesPlaceRanks(t *testing.T) {
	const secret = "COHORT_SECRET=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	with := func(env []string, more ...string) []string { return append(env[:len(env):len(env)], more...) }
	for _, c := range []struct {
		name           string
		env            []string
		backend        string
		job            string
		at, start, err string // the coordinator, or how it begins
	}{
		{"mpirun", mpirunHere, "shm", "prterun-n1-7@1", "", "", ""},
		{"jsrun", jsrunHere, "shm", "2.88", "", "", ""},
		{"PALS", palsHere, "shm", "9f-3", "", "", ""},
		{"Flux", fluxHere, "shm", "f7", "", "", ""},
		{"a name for two launches", with(palsHere, "COHORT_JOB=weather"), "shm", "weather 9f-3", "", "", ""},
		{"tcp on one node", with(palsHere, "COHORT_BACKEND=tcp", secret), "tcp", "9f-3", "", "localhost:2", ""},
		{"tcp without a secret", with(palsHere, "COHORT_BACKEND=tcp"), "tcp", "", "", "", "openssl rand -hex 32"},
		{"srun", with(srunApart, secret), "tcp", "47.2.alps", "", "n03:2", ""},
		{"srun without a secret", srunApart, "tcp", "", "", "", "rank 1 of 4, started by srun (SLURM_STEP_NUM_TASKS=4), can join over tcp if you set, on all ranks, COHORT_SECRET_FILE"},
		{"srun with reserved ports", with(srunApart, secret, "SLURM_STEP_RESV_PORTS=12000-12003"), "tcp", "47.2.alps", "n03:12003", "", ""},
		{"srun with ports", with(srunApart, secret, "COHORT_TCP_PORTS=7000-7100"), "tcp", "47.2.alps", "n03:7100", "", ""},
		{"srun with a port", with(srunApart, secret, "COHORT_TCP_COORDINATOR=:7700"), "tcp", "47.2.alps", "n03:7700", "", ""},
		{"srun with an address", with(srunApart, secret, "COHORT_TCP_COORDINATOR=n03-ib:7700"), "tcp", "47.2.alps", "n03-ib:7700", "", ""},
		{"shm over two nodes", with(srunApart, "COHORT_BACKEND=shm"), "shm", "", "", "", "of 4 ranks, started by srun (SLURM_STEP_NUM_TASKS=4), 2 are on this one"},
		{"a launcher without a list of nodes", with(mpirunApart, secret), "tcp", "", "", "", "COHORT_TCP_COORDINATOR to HOST:PORT, where HOST is the node of rank 0"},
		{"PMIx that is not used", with(mpirunApart, secret, "PMIX_RANK=1"), "tcp", "", "", "", "PMIx (PMIX_NAMESPACE=prterun-n1-7@1) is not used: the program is built without the tag pmix"},
		{"with an address", with(mpirunApart, secret, "COHORT_TCP_COORDINATOR=a:7700"), "tcp", "prterun-n1-7@1", "a:7700", "", ""},
		{"a launcher that names no launch", []string{"PMI_RANK=1", "PMI_SIZE=2", "PMI_LOCAL_SIZE=2"}, "shm", "", "", "", "COHORT_JOB to a name that no other job has"},
		{"the same, named", []string{"PMI_RANK=1", "PMI_SIZE=2", "PMI_LOCAL_SIZE=2", "COHORT_JOB=j"}, "shm", "j", "", "", ""},
		{"a program that a rank has started", with(palsHere, "COHORT_JOINED=1 rank 1 of 9f-3"), "shm", "", "", "", "process 1 is rank 1 of 2"},
		{"a rank that another rank's program has started", with(palsHere, "COHORT_JOINED=1 rank 1 of 8f-1"), "shm", "9f-3", "", "", ""},
	} {
		if lookup(c.backend).missing != "" {
			continue // the program was built without it
		}
		env := envOf(c.env...)
		s, err := resolve(nil, env)
		if err != nil {
			t.Fatal(err)
		}
		if s.Backend == "auto" {
			s.Backend = s.withoutMPI(env)
		}
		if s.Backend != c.backend {
			t.Errorf("%s: %s, want %s", c.name, s.Backend, c.backend)
		}
		unfit := s.unfit(c.backend, env)
		if s.placed != unplaced || s.Rank != 0 {
			t.Errorf("%s: the check has made it rank %d", c.name, s.Rank)
		}
		_, err = s.launched(t.Context(), c.backend, env)
		switch at := s.TCP.Coordinator; {
		case c.err != "":
			if !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), c.err) || unfit == nil {
				t.Errorf("%s: %v, before that %v, want %q", c.name, err, unfit, c.err)
			}
		case err != nil || unfit != nil:
			t.Errorf("%s: %v, before that %v", c.name, err, unfit)
		case s.Rank != 1 || s.Job != c.job || c.start == "" && at != c.at || !strings.HasPrefix(at, c.start):
			t.Errorf("%s: rank %d of job %q, coordinator %q; want rank 1 of %q, %q", c.name, s.Rank, s.Job, at, c.job, c.at+c.start)
		}
	}
}

// TestOneRankByVariables has a launcher start a single rank, with a backend for several.
func TestOneRankByVariables(t *testing.T) {
	for _, name := range []string{"shm", "tcp"} {
		env := envOf("PALS_NRANKS=1", "PALS_RANKID=0", "PALS_LOCAL_RANKID=0", "PALS_LOCAL_SIZE=1", "PALS_APID=9f-3", "COHORT_BACKEND="+name,
			"COHORT_SECRET="+strings.Repeat("0123456789abcdef", 4))
		s, err := resolve(nil, env)
		if err != nil {
			t.Fatal(err)
		}
		unfit := s.unfit(name, env)
		if _, err := s.launched(t.Context(), name, env); unfit != nil || err != nil || s.placed != numbered || s.Size != 1 {
			t.Errorf("%s: %v, %v, %d ranks; want 1", name, unfit, err, s.Size)
		}
	}
}

// TestUnplacedRankIsErrInit has variables of a launcher that say no rank: none of its processes becomes a world of one.
func TestUnplacedRankIsErrInit(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string // no error if it is empty
	}{
		{[]string{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=2"}, "started by Open MPI's mpirun, but OMPI_COMM_WORLD_RANK=\"2\": not below OMPI_COMM_WORLD_SIZE=\"2\""},
		{[]string{"PALS_NRANKS=0", "PALS_RANKID=0"}, "started by Cray PALS, but PALS_RANKID=\"0\": not below PALS_NRANKS=\"0\""},
		{[]string{"PMI_SIZE=two", "PMI_RANK=0", "PMI_FD=3"}, "started by a PMI launcher, but PMI_SIZE=\"two\": not a number"},
		{[]string{"PMI_SIZE=2", "PMI_RANK=-1", "COHORT_BACKEND=shm"}, "started by a PMI launcher, but PMI_RANK=\"-1\": not a number"},
		{[]string{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=2", "COHORT_BACKEND=local"}, ""},
		{[]string{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=2", "COHORT_SIZE=1", "COHORT_RANK=0"}, ""},
	} {
		withEnv(t, c.env...)
		world, err := Init(t.Context(), nil)
		if err == nil {
			err = world.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrInit) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.env, err, c.want)
		}
	}
}

// TestUnusableLibraryGivesWayToVariables has a launcher whose library is found, and cannot be loaded. The rank waits for
// the others without MPI, and its error keeps the reason.
func TestUnusableLibraryGivesWayToVariables(t *testing.T) {
	if lookup("shm").missing != "" {
		t.Skip("this program was built without shm")
	}
	mpi := lookup("mpi")
	const reason = "no MPI library can be loaded: libhwloc.so.15: not there"
	opened := false
	set := func(k known) {
		backendsMu.Lock()
		defer backendsMu.Unlock()
		backends["mpi"] = k
	}
	set(known{priority: mpi.priority, open: func(context.Context, settings) (backend.Comm, error) {
		opened = true
		return nil, &mpifind.Unusable{Err: fault(ErrInit, reason)}
	}})
	t.Cleanup(func() { set(mpi) })
	withEnv(t, append(palsHere, "COHORT_JOIN_TIMEOUT=100ms")...)
	s, err := resolve(nil, osEnv)
	if err != nil {
		t.Fatal(err)
	}
	found := s.available("mpi", osEnv)
	_, err = Init(t.Context(), nil)
	want := reason
	if found != nil { // a machine without a library
		want = backend.AsFault(found).Text
	}
	if opened != (found == nil) || !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), "rank 0 did not appear") || !strings.Contains(err.Error(), "backend mpi is not used: "+want) {
		t.Errorf("mpi was tried: %v; %v", opened, err)
	}
}
