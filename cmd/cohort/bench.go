package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/topo"
)

var benchCommand = command{
	name:    "bench",
	args:    "OP",
	summary: "Measure what one operation takes, by message size.",
	setup:   setupBench,
	about: `
OP is one of:
` + benchList() + `
The time is the median over the batches of the time of one call: for p2p half a
round trip, for the others the mean over the ranks. A batch lasts about 20 ms.
The throughput is the message size over that time.

The ranks are started by this command, bound to cores as by cohort run; with
--backend local they are goroutines of one process. In a job that has been
started already, by cohort run or an MPI launcher, it is one of the ranks.

Examples:
  cohort bench -n 2 p2p
  cohort bench --backend mpi -n 2 p2p
  mpiexec -n 2 cohort bench p2p
  cohort bench --json -n 4 --sizes 8,1024 allreduce
  cohort bench -n 2 --plot latency.svg allreduce
`,
}

// benchSettings are the options of cohort bench.
type benchSettings struct {
	op      *benchOp
	ranks   int
	backend string
	bind    spawn.Bind
	sizes   []int
	reps    int
	json    bool
	plot    string
}

// maxBenchBytes bounds one message, so that a slip of the finger is an error and
// not a machine out of memory.
const maxBenchBytes = 8 << 30

func setupBench(o *options) func([]string) (int, error) {
	b := benchSettings{reps: 15, sizes: []int{8, 64, 1024, 8192, 65536, 1 << 20, 4 << 20}}
	o.number(&b.ranks, 'n', "", "N", "number of ranks (default 2)", 1, spawn.MaxRanks)
	o.text(&b.backend, "backend", "NAME", "shm (default), tcp, mpi or local")
	bindOption(o, &b.bind)
	o.add(option{0, "sizes", "BYTES,…", "message sizes (default 8,64,1024,8192,65536,1048576,4194304)", func(s string) error {
		b.sizes = nil
		for part := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n > maxBenchBytes {
				return fmt.Errorf("want whole numbers from 0 to %d with commas between", maxBenchBytes)
			}
			b.sizes = append(b.sizes, n)
		}
		return nil
	}})
	o.number(&b.reps, 0, "reps", "N", "batches of each size (default 15)", 1, 100_000)
	o.flag(&b.json, 0, "json", "print a JSON object a line instead of a table")
	o.text(&b.plot, "plot", "FILE.svg", "draw time and throughput by message size as well")
	return b.run
}

func (b *benchSettings) run(args []string) (int, error) {
	if len(args) != 1 {
		return statusUsage, usagef("want one OP, one of %s", strings.Join(benchNames(), ", "))
	}
	if b.op = findBench(args[0]); b.op == nil {
		return statusUsage, usagef("there is no operation %q%s; there are %s", args[0], didYouMean(args[0], benchNames()), strings.Join(benchNames(), ", "))
	}
	if err := b.checkBackend(); err != nil {
		return statusUsage, err
	}
	if os.Getenv(spawn.EnvSize) != "" {
		return b.join()
	}
	if l := mpifind.Launched(os.LookupEnv); l != nil && (l.Size > 1 || b.backend == "mpi") {
		if b.backend != "" && b.backend != "mpi" {
			return statusUsage, usagef("--backend %s: this is one of %d processes started by %v; leave the launcher out", b.backend, l.Size, l)
		}
		return b.join()
	}
	if b.ranks == 0 {
		b.ranks = 2
	}
	if b.ranks < b.op.ranks {
		return statusUsage, usagef("%s is between 2 ranks: want -n 2 or more", b.op.name)
	}
	if b.backend == "local" {
		if err := cohort.Run(context.Background(), b.ranks, b.measure); err != nil {
			return 1, err
		}
		return 0, nil
	}
	return b.start()
}

// checkBackend reports why a backend cannot be measured.
func (b *benchSettings) checkBackend() error {
	switch b.backend {
	case "", "shm", "tcp", "mpi", "local":
		return nil
	}
	return usagef("--backend %s: there is no such backend%s; there are shm, tcp, mpi and local", b.backend, didYouMean(b.backend, []string{"shm", "tcp", "mpi", "local"}))
}

// start runs this same command line as ranks of a job.
func (b *benchSettings) start() (int, error) {
	if err := spawn.Supported(); err != nil {
		return 1, fmt.Errorf("%w (here: --backend local)", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return 1, err
	}
	node, err := topo.Here()
	if err != nil {
		return 1, err
	}
	places, err := spawn.Place(node, b.bind, b.ranks)
	if err != nil {
		return statusUsage, err
	}
	signals := spawn.Notify()
	keeper, err := spawn.StartKeeper()
	if err != nil {
		return 1, err
	}
	defer keeper.Close()
	config := spawn.Config{
		Path: exe, Args: os.Args[1:], Backend: "shm", Ranks: b.ranks, Places: places, Signals: signals, Keeper: keeper,
	}
	if b.backend == "mpi" {
		launch, remove, err := mpiLaunch(b.ranks, false, keeper)
		if err != nil {
			return statusUsage, err
		}
		defer remove()
		config.Backend, config.Launch = "mpi", launch
	}
	if b.backend == "tcp" {
		config.Backend, config.Env = "tcp", os.Environ()
		end, err := tcpMeeting(&config, keeper)
		if err != nil {
			return statusUsage, err
		}
		defer end()
	}
	job, err := spawn.Start(config)
	if err != nil {
		return 1, err
	}
	return job.Wait().Status, nil
}

// join measures as one rank of the job that this process was started in.
func (b *benchSettings) join() (status int, err error) {
	world, err := cohort.Init(context.Background(), &cohort.Config{Backend: b.backend})
	if err != nil {
		return 1, err
	}
	defer func() {
		if e := world.Close(); err == nil && e != nil {
			status, err = 1, e
		}
	}()
	if n := world.Size(); b.ranks != 0 && b.ranks != n {
		return statusUsage, usagef("-n %d in a job of %d ranks", b.ranks, n)
	} else if n < b.op.ranks {
		return statusUsage, usagef("%s is between 2 ranks, and this job has %d", b.op.name, n)
	}
	if err := b.measure(world); err != nil {
		if world.Rank() != 0 && errors.Is(err, cohort.ErrPeerLost) {
			return 1, nil // the rank that was lost, or rank 0, says more
		}
		return 1, err
	}
	return 0, nil
}

// result is one line of what cohort bench prints; the fields are those of the
// C baseline.
type result struct {
	Op    string  `json:"op"`
	Impl  string  `json:"impl"`
	Lib   string  `json:"lib"`
	Ranks int     `json:"ranks"`
	Bytes int     `json:"bytes"`
	Usec  decimal `json:"usec"`
	Gbps  decimal `json:"gbps"`
}

// decimal is a number written with four digits after the point.
type decimal float64

// MarshalJSON implements json.Marshaler.
func (d decimal) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(d), 'f', 4, 64), nil
}

// measure is one rank's part; rank 0 prints.
func (b *benchSettings) measure(world *cohort.Comm) error {
	sizes := b.sizes
	if b.op.sizeless {
		sizes = []int{0}
	}
	lib := world.Caps().Library
	if lib == "" {
		lib = world.Backend()
	}
	var all []result
	for _, bytes := range sizes {
		usec, err := timeOp(world, b.op, bytes, b.reps)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", b.op.name, bytes, err)
		}
		if world.Rank() != 0 {
			continue
		}
		r := result{
			Op: b.op.name, Impl: "cohort", Lib: lib, Ranks: world.Size(), Bytes: bytes,
			Usec: decimal(usec), Gbps: decimal(float64(bytes) / usec / 1e3),
		}
		all = append(all, r)
		if b.json {
			line, err := json.Marshal(r)
			if err != nil {
				return err
			}
			_, err = fmt.Printf("%s\n", line)
			if err != nil {
				return err
			}
		} else if err := printRow(os.Stdout, r, len(all) == 1); err != nil {
			return err
		}
	}
	if b.plot != "" && world.Rank() == 0 {
		if err := writePlot(b.plot, all); err != nil {
			return fmt.Errorf("drawing: %w", err)
		}
	}
	return nil
}
