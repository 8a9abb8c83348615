// Command sddp plans the operation of a hydrothermal power system by stochastic dual dynamic
// programming: the reference application of cohort. It runs alone or on many ranks:
//
//	sddp train cases/brazil4
//	cohort run -n 4 ./cmd/sddp train cases/brazil4
//	cohort run -n 2 ./cmd/sddp train cases/brazil4 --threads 8 --pin numa
//
// sddp help tells the rest.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/sddp"
)

// The statuses the command ends with.
const (
	statusFailed = 1
	statusUsage  = 2
	statusSignal = 128 // and the number of the signal, as a shell has it
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with what it touches given to it.
func run(args []string, stdout, stderr *os.File) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return statusUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		return help(rest, stdout, stderr)
	}
	cmd, ok := commands[name]
	if !ok {
		fmt.Fprintf(stderr, "sddp: unknown command %q, want train, simulate, info or help\n", name)
		return statusUsage
	}
	o, err := parseOptions(name, cmd, rest)
	switch {
	case errors.Is(err, errHelp):
		fmt.Fprint(stdout, cmd.help)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "sddp %s: %v\nRun 'sddp help %s' for what it takes.\n", name, err, name)
		return statusUsage
	}
	if name == "info" {
		return info(o, stdout, stderr)
	}

	ctx, signals := watchSignals()
	defer signals.end()
	env, err := hybrid.Start(ctx, &hybrid.Config{Job: &cohort.Config{Resilient: o.resilient}, Threads: o.threads, Pin: pool.Policy(o.pin), Summary: named{stderr}})
	if sig := signals.first(); err != nil && sig != nil {
		fmt.Fprintf(stderr, "sddp: %s before all ranks were there; nothing was written\n", ended(sig))
		return statusOf(sig)
	}
	if err != nil {
		var step *hybrid.StepError
		if !errors.As(err, &step) || !step.Peer { // else that rank tells
			fmt.Fprintf(stderr, "sddp: %v\n", err)
		}
		return statusFailed
	}
	j := &job{ctx: ctx, signals: signals, env: env, o: o, out: stdout}
	j.progress = newProgress(j.first, stderr, o.iterations)
	if o.resilient {
		j.recovery = &sddp.Recovery{Lost: func(l sddp.Loss) { j.progress.warn(l) }}
	}
	err = cmd.run(j)
	j.progress.end()
	rank := j.world().Rank() // among those that are left: nobody knows it when all is closed
	if err == nil {
		err = errors.Join(j.recovery.Close(), env.Close())
	}
	if err != nil {
		return j.failed(err, rank, stderr)
	}
	return 0
}

// named writes lines with the name of the command before each, as that of the start, which is a line
// among those of the launcher and of scripts.
type named struct{ w io.Writer }

func (n named) Write(line []byte) (int, error) {
	if _, err := n.w.Write(append([]byte("sddp: "), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// job is one run of a command that needs the ranks.
type job struct {
	ctx      context.Context
	signals  *signals
	env      *hybrid.Env
	recovery *sddp.Recovery // nil without --resilient
	o        *options
	out      io.Writer
	progress *progress
	written  bool // the files, if any were asked for
	saved    bool // the training is in a checkpoint
}

// world returns the communicator of the ranks that are left.
func (j *job) world() *cohort.Comm { return j.recovery.World(j.env.World) }

// first reports whether this is the rank that reads, writes and prints.
func (j *job) first() bool { return j.world().Rank() == 0 }

// failed says what went wrong on a rank and returns the status to end with. An error that all ranks have is
// told by rank 0, one that a rank has for itself by that rank.
func (j *job) failed(err error, rank int, stderr io.Writer) int {
	sig := j.signals.first()
	if errors.Is(err, sddp.ErrStopped) {
		if sig == nil { // another rank got it
			sig = syscall.SIGTERM
		}
		_ = errors.Join(j.recovery.Close(), j.env.Close()) // all ranks leave in good order; they have nothing more to say
	}
	status := statusFailed
	if sig != nil {
		status = statusOf(sig)
	}
	if rank != 0 {
		// Else another rank tells; what a backend cannot do it cannot on any.
		if sig == nil && !errors.Is(err, sddp.ErrPeer) && !errors.Is(err, cohort.ErrNotSupported) {
			fmt.Fprintf(stderr, "sddp: rank %d: %v\n", rank, err)
		}
		return status
	}
	var at *sddp.CheckpointError
	hasCheckpoints := errors.As(err, &at)
	if hasCheckpoints && at.Unsaved != nil {
		fmt.Fprintf(stderr, "sddp: %v\n", at.Unsaved)
		err = at.Err
	}
	what := ended(sig)
	var next string
	switch {
	case hasCheckpoints && at.Iterations > 0:
		next = fmt.Sprintf("continue with --resume %s (%d iterations are saved)", at.Dir, at.Iterations)
	case j.saved && !j.written:
		next = fmt.Sprintf("continue with --resume %s (the training is saved)", j.o.checkpointDir())
	}
	switch {
	case sig != nil && j.written:
		fmt.Fprintf(stderr, "sddp: %s after the files were written\n", what)
	case sig != nil && next != "":
		fmt.Fprintf(stderr, "sddp: %s; %s\n", what, next)
	case sig != nil:
		fmt.Fprintf(stderr, "sddp: %s; nothing was written\n", what)
	default:
		fmt.Fprintf(stderr, "sddp: %v\n", err)
		if next != "" {
			fmt.Fprintf(stderr, "sddp: %s\n", next)
		}
	}
	return status
}
