package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/chart"
	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// tools reports whether folders can be built.
func (d *diagnosis) tools() {
	const group = "building"
	if path, err := exec.LookPath("go"); err != nil {
		d.add(group, "go", warn, "not in PATH", "'cohort run FOLDER' needs it; running an executable does not")
	} else if out, err := exec.Command(path, "env", "GOVERSION").Output(); err != nil {
		d.add(group, "go", warn, fmt.Sprintf("%s does not work: %v", path, err), "")
	} else {
		d.add(group, "go", ok, strings.TrimSpace(string(out))+" at "+path, "")
	}
}

// knownVariables are those of docs/environment.md.
var knownVariables = []string{
	"COHORT_BACKEND", "COHORT_RANK", "COHORT_SIZE", "COHORT_REPLICAS", "COHORT_JOB", "COHORT_MPI_LIB",
	"COHORT_CHECK", "COHORT_DETERMINISTIC", "COHORT_TIMEOUT", "COHORT_HEARTBEAT", "COHORT_JOIN_TIMEOUT", "COHORT_COLLECTIVES", "COHORT_THREADS", "COHORT_PIN",
	"COHORT_RESILIENT", "COHORT_FLIGHT_DIR", "COHORT_FLIGHT_KEPT", "COHORT_STATS", "COHORT_JOINED", "COHORT_GENERATIONS", "COHORT_RUN_DIR",
	"COHORT_SECRET_FILE", "COHORT_SECRET",
	"COHORT_TCP_COORDINATOR", "COHORT_TCP_IFACE", "COHORT_TCP_PORTS", "COHORT_TCP_CONNECT", "COHORT_TCP_SHM", "COHORT_TCP_CHECKSUM",
	"COHORT_TCP_TLS_CERT", "COHORT_TCP_TLS_KEY", "COHORT_TCP_TLS_CA", "COHORT_TCP_TLS_NAME",
	"COHORT_MPI_THREAD", "COHORT_MPI_CUDA", "COHORT_MPI_EAGER", "COHORT_MPI_BUFFER", "COHORT_MPI_TUNING", "COHORT_MPI_PROFILE",
	"COHORT_TENSOR_CHUNK", "COHORT_TENSOR_DIRECT",
}

// environment reports the variables that are set and change what cohort does.
func (d *diagnosis) environment() {
	const group = "environment"
	var set []string
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case !strings.HasPrefix(name, "COHORT_"):
		case !slices.Contains(knownVariables, name):
			d.add(group, name, warn, "set, but cohort has no such variable"+cli.DidYouMean(name, knownVariables), "")
		case name == "COHORT_SECRET":
			set = append(set, name+"=(not shown)")
		default:
			set = append(set, name+"="+value)
		}
	}
	if v := os.Getenv("GOMAXPROCS"); v != "" {
		d.add(group, "GOMAXPROCS", warn, v+" in every rank, regardless of its binding", "unset it; each rank then uses as many threads as it has processors")
	}
	if len(set) == 0 {
		d.add(group, "variables", ok, "no COHORT_ variables are set", "")
	} else {
		d.add(group, "variables", ok, strings.Join(set, " "), "")
	}
}

// probeCommand makes this program a rank of the doctor's own job.
const probeCommand = "doctor-probe"

// probed is what rank 0 of the doctor's job reports.
type probed struct {
	Library    string // of mpi
	SingleCopy bool
	Seconds    float64 // from Init to the end of the exchange
}

// backends reports which backends work, by using them. The records of a job that failed stay as they are.
func (d *diagnosis) backends(env func(string) (string, bool)) {
	const group = "backends"
	for _, name := range []string{flight.EnvDir, flight.EnvStats} {
		_ = os.Unsetenv(name)
	}
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		_, err := exchange(world)
		return err
	})
	if err != nil {
		d.add(group, "local", fail, err.Error(), "")
	} else {
		d.add(group, "local", ok, "two ranks in one process exchanged messages", "")
	}
	for _, name := range []string{"shm", "tcp"} {
		alone, err := cohort.Init(context.Background(), &cohort.Config{Backend: name, Size: 1, Job: "doctor"})
		alone.Close()
		if errors.Is(err, cohort.ErrNotSupported) { // other errors: a job of two ranks tells more
			d.add(group, name, none, reason(err), "")
			continue
		}
		d.backend(name)
	}
	switch l := mpifind.Launched(env); {
	case !mpiBuilt:
		d.add(group, "mpi", none, withoutMPI, "")
	case l != nil:
		d.add(group, "mpi", none, "not tried: this is a process of "+l.String(), "")
	default:
		d.backend("mpi")
	}
}

// reason returns the text of an error of Init for a backend that is not available.
func reason(err error) string {
	var op *cohort.OpError
	if !errors.As(err, &op) {
		return "not available"
	}
	return strings.TrimPrefix(op.Err.Error(), cohort.ErrNotSupported.Error()+": ")
}

// backend reports whether a job of two ranks works.
func (d *diagnosis) backend(name string) {
	const group = "backends"
	exe, _ := os.Executable() // self returns the error
	out, said, err := self(30*time.Second, d.keeper, "run", "-n", "2", "--backend", name, "--tag=false", exe, probeCommand)
	var p probed
	first, ofLauncher := strings.CutPrefix(said, "cohort run: ") // not the status 2 of a rank that panics
	first, _, _ = strings.Cut(first, "\n")
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == cli.StatusUsage && ofLauncher && name == "mpi":
		d.add(group, name, none, first, "")
		return
	case errors.As(err, &exit):
		err = fmt.Errorf("a job of two ranks failed: %s", first)
	case err == nil:
		err = json.Unmarshal([]byte(out), &p)
	}
	if err != nil {
		s := fail
		if name == "mpi" {
			s = warn
		}
		d.add(group, name, s, err.Error(), fmt.Sprintf("cohort run --backend %s does not work here", name))
		return
	}
	text := "two processes joined and exchanged messages in " + chart.SI(p.Seconds, "s")
	switch {
	case name == "mpi":
		d.add(group, name, ok, p.Library+": "+text, "")
	case name == "tcp":
		d.add(group, name, ok, text, "")
	case p.SingleCopy:
		d.add(group, name, ok, text+"; long messages in one copy", "")
	default:
		d.add(group, name, warn, text+"; long messages in two copies", "one process may not read another's memory here (process_vm_readv): see kernel above")
	}
}

// errHung is the error of self when its time is over.
var errHung = errors.New("it hung")

// self runs this program with other arguments, for at most limit, and returns what it writes. Its standard input has a line once
// the keeper, which may be nil, knows of it. The keeper ends it if this process is killed.
func self(limit time.Duration, keeper *spawn.Keeper, args ...string) (out, said string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ownGroup(cmd)
	cmd.WaitDelay = 10 * time.Second // for output that a busy machine still has to read
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", "", err
	}
	if err = cmd.Start(); err == nil {
		keeper.Group(cmd.Process.Pid)
		in.Write([]byte("\n")) // if that fails, the process has ended
		err = cmd.Wait()
		keeper.GroupGone(cmd.Process.Pid)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w, and was ended after %v", errHung, limit)
	}
	return stdout.String(), stderr.String(), err
}

// probe is what the ranks of the doctor's job do.
func probe() int {
	began := time.Now()
	world, err := cohort.Init(context.Background(), nil)
	if err == nil {
		var p probed
		if p, err = exchange(world); err == nil && world.Rank() == 0 {
			p.Seconds = time.Since(began).Seconds()
			err = json.NewEncoder(os.Stdout).Encode(p)
		}
		err = world.CloseWith(err)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// exchange makes sure that messages, short and long, and a collective arrive.
func exchange(world *cohort.Comm) (probed, error) {
	caps := world.Caps()
	p := probed{Library: caps.Library, SingleCopy: caps.SingleCopy}
	me, other := world.Rank(), 1-world.Rank()
	for _, n := range []int{1, 1 << 18} {
		send, recv := make([]int64, n), make([]int64, n)
		for i := range send {
			send[i] = int64(me*n + i)
		}
		if _, err := cohort.Sendrecv(world, send, other, 7, recv, other, 7); err != nil {
			return p, err
		}
		for i, v := range recv {
			if want := int64(other*n + i); v != want {
				return p, fmt.Errorf("element %d of %d arrived as %d, want %d", i, n, v, want)
			}
		}
	}
	sum, err := cohort.AllreduceOne(world, me+1, cohort.Sum)
	if err == nil && sum != 3 {
		err = fmt.Errorf("1 + 2 over two ranks gave %d", sum)
	}
	return p, err
}
