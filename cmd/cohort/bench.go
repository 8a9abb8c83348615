package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/chart"
	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

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

// maxBenchBytes bounds one message, so that a typing error does not exhaust the
// machine's memory.
const maxBenchBytes = min(8<<30, math.MaxInt)

func newBench() *cobra.Command {
	b := benchSettings{reps: 15, ranks: 0, sizes: []int{8, 64, 1024, 8192, 65536, 1 << 20, 4 << 20}}
	c := &cobra.Command{
		Use:   "bench [flags] OP",
		Short: "Measure the time of an operation for each message size",
		Long: `
Measure the time of an operation for each message size. OP is one of:

` + benchList() + `
The time is that of one call: half a round trip for p2p, the mean over the ranks
for the others. For bw it is the time of a batch of the slowest rank, divided by
the messages of all pairs. It is the median of batches that
take about 20 ms each. The throughput is the message size divided by the time.
The handover is how long a cache line takes between the processors of ranks 0
and 1, measured before each size. Compare times only if it is alike: a virtual
machine may be moved between processors that share a cache and others.

This command starts the ranks itself, unless cohort run or an MPI launcher has
started it as a rank. With --backend local, ranks are goroutines of one process.`,
		Example: `
  cohort bench -n 2 p2p
  cohort bench --backend mpi -n 2 p2p
  mpiexec -n 2 cohort bench p2p
  cohort bench --json -n 4 --sizes 8,1024 allreduce
  cohort bench -n 2 --plot latency.svg allreduce`,
		ValidArgs: benchNames(),
		RunE:      func(_ *cobra.Command, args []string) error { return b.run(args) },
	}
	f := c.Flags()
	cli.Number(f, &b.ranks, "ranks", "n", 1, spawn.MaxRanks, "start this many ranks (default 2)")
	f.StringVar(&b.backend, "backend", "", "measure the backend `NAME`: shm, tcp, mpi or local (default shm)")
	cli.Complete(c, "backend", benchBackends...)
	bindFlag(c, &b.bind)
	cli.Func(f, "sizes", "", "BYTES,...", "8,64,1024,8192,65536,1048576,4194304", "measure these message sizes", func(s string) error {
		b.sizes = nil
		for part := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n > maxBenchBytes {
				return fmt.Errorf("want whole numbers from 0 to %d, separated by commas", maxBenchBytes)
			}
			b.sizes = append(b.sizes, n)
		}
		return nil
	})
	cli.Number(f, &b.reps, "reps", "", 1, 100_000, "measure `N` batches of each size")
	f.BoolVar(&b.json, "json", false, "print one JSON object per line instead of a table")
	f.StringVar(&b.plot, "plot", "", "also draw a chart of time and throughput to `FILE.svg`")
	return c
}

func (b *benchSettings) run(args []string) error {
	if len(args) != 1 {
		return cli.Usagef("got %d arguments, want one OP: %s", len(args), strings.Join(benchNames(), ", "))
	}
	if b.op = findBench(args[0]); b.op == nil {
		return cli.Usagef("unknown operation %q%s (want one of %s)", args[0], cli.DidYouMean(args[0], benchNames()), strings.Join(benchNames(), ", "))
	}
	if b.backend != "" && !slices.Contains(benchBackends, b.backend) {
		return cli.Usagef("--backend %s: want shm, tcp, mpi or local%s", b.backend, cli.DidYouMean(b.backend, benchBackends))
	}
	if os.Getenv(spawn.EnvSize) != "" {
		return b.join()
	}
	if l := mpifind.Launched(os.LookupEnv); l != nil && (l.Size > 1 || b.backend == "mpi") {
		if b.backend != "" && b.backend != "mpi" {
			return cli.Usagef("--backend %s: this is one of %d processes started by %v; start cohort bench without that launcher", b.backend, l.Size, l)
		}
		return b.join()
	}
	if b.ranks == 0 {
		b.ranks = 2
	}
	if b.ranks < b.op.ranks {
		return cli.Usagef("%s needs 2 ranks: want -n 2 or more", b.op.name)
	}
	if b.backend == "local" {
		return cohort.Run(context.Background(), b.ranks, b.measure)
	}
	return b.start()
}

var benchBackends = append(slices.Clone(runBackends), "local")

// start runs this same command line as ranks of a job.
func (b *benchSettings) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	r := runOptions{backend: b.backend, bind: b.bind, grace: spawn.Grace}
	return cli.Exit(r.run(spawn.Programs{{Path: exe, Args: os.Args[1:], Ranks: b.ranks}}))
}

// join measures as one rank of the job that this process was started in.
func (b *benchSettings) join() error {
	world, err := cohort.Init(context.Background(), &cohort.Config{Backend: b.backend})
	if err != nil {
		return err
	}
	switch n := world.Size(); {
	case b.ranks != 0 && b.ranks != n:
		err = cli.Usagef("-n %d: this job has %d ranks; leave -n out", b.ranks, n)
	case n < b.op.ranks:
		err = cli.Usagef("%s needs 2 ranks, and this job has %d", b.op.name, n)
	default:
		err = b.measure(world)
	}
	closed := world.CloseWith(err)
	if world.Rank() != 0 && errors.Is(err, cohort.ErrPeerLost) {
		return cli.Exit(1, nil) // the lost rank, or rank 0, reports the cause
	}
	return cmp.Or(err, closed)
}

// result is one line of what cohort bench prints; the fields are those of the
// C baseline.
type result struct {
	Op    string  `json:"op"`
	Impl  string  `json:"impl"`
	Lib   string  `json:"lib"`
	Ranks int     `json:"ranks"`
	Bytes int     `json:"bytes"`
	Usec  float64 `json:"usec"`
	Gbps  float64 `json:"gbps"`

	// Handover is how long a cache line took between the processors of ranks 0 and 1 just before, 0 if they
	// share no memory. Times may be compared only where this is alike.
	Handover float64 `json:"handover_ns"`
}

// rounded returns a number with four digits after the point.
func rounded(x float64) float64 { return math.Round(x*1e4) / 1e4 }

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
		ns, err := handover(world)
		if err != nil {
			return err
		}
		usec, err := timeOp(world, b.op, bytes, b.reps)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", b.op.name, bytes, err)
		}
		if world.Rank() != 0 {
			continue
		}
		r := result{
			Op: b.op.name, Impl: "cohort", Lib: lib, Ranks: world.Size(), Bytes: bytes,
			Usec: rounded(usec), Gbps: rounded(float64(bytes) / usec / 1e3), Handover: math.Round(ns),
		}
		all = append(all, r)
		if b.json {
			err = json.NewEncoder(os.Stdout).Encode(r)
		} else {
			err = printRow(os.Stdout, r, len(all) == 1)
		}
		if err != nil {
			return err
		}
	}
	if b.plot != "" && world.Rank() == 0 {
		if err := writePlot(b.plot, all); err != nil {
			return fmt.Errorf("drawing %s: %w", b.plot, err)
		}
	}
	return nil
}

// printRow writes a row of the table, after its head if it is the first one.
func printRow(w io.Writer, r result, first bool) error {
	seconds := r.Usec * 1e-6
	rate := chart.SI(float64(r.Bytes)/seconds, "B/s")
	if r.Bytes == 0 {
		rate = chart.SI(1/seconds, "/s") // calls
	}
	text := fmt.Sprintf("%12d %14s %14s %11.0f ns\n", r.Bytes, chart.SI(seconds, "s"), rate, r.Handover)
	if first {
		text = fmt.Sprintf("%s on %s, %d ranks\n%12s %14s %14s %14s\n", r.Op, r.Lib, r.Ranks, "bytes", "time", "throughput", "handover") + text
	}
	_, err := io.WriteString(w, text)
	return err
}
