// Command sddp plans the operation of a hydrothermal power system by stochastic dual dynamic
// programming. It is the reference application of cohort and runs on one rank or many:
//
//	sddp train sddp/cases/brazil4
//	cohort run -n 4 ./sddp/cmd/sddp train sddp/cases/brazil4
//	cohort run -n 2 ./sddp/cmd/sddp train sddp/cases/brazil4 --threads 8 --pin numa
//
// Run sddp help for the commands and their flags.
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
	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/sddp"
)

func main() {
	os.Exit(cli.Execute(newRoot(os.Stdout, os.Stderr), os.Args[1:], os.Stdout, os.Stderr))
}

// job is one run of a command that uses the ranks.
type job struct {
	ctx      context.Context
	signals  *signals
	world    *cohort.Comm
	env      *hybrid.Env
	recovery *sddp.Recovery // nil if the loss of a rank ends the job
	o        *options
	out      io.Writer
	progress *progress
	warned   bool // of what is odd in the case
	outputs  []output
	written  bool // the files, if any were asked for
	saved    bool // the training is in a checkpoint
}

// start joins the job, runs a command on its ranks, and returns the exit status.
func start(command func(*job) error, o *options, stdout, stderr *os.File) int {
	ctx, signals := watchSignals()
	defer signals.end()
	world, err := cohort.Init(ctx, &cohort.Config{Resilient: o.resilient})
	if sig := signals.first(); err != nil && sig != nil {
		fmt.Fprintf(stderr, "sddp: %s before all ranks had joined; nothing was written\n", ended(sig))
		return statusOf(sig)
	}
	if err != nil {
		fmt.Fprintf(stderr, "sddp: %v\n", err)
		return cli.StatusFailed
	}
	j := &job{ctx: ctx, signals: signals, world: world, o: o, out: stdout}
	j.progress = newProgress(j.first, stderr, o.quiet)
	if o.resilient || world.Resized() != nil { // else no launcher replaces ranks
		j.recovery = &sddp.Recovery{Lost: func(l sddp.Loss) { j.progress.warn(l) }}
	}
	config := &hybrid.Config{Threads: o.threads, Pin: pool.Pinning(o.pin)}
	if !o.quiet {
		config.Summary = named{stderr}
	}
	err = j.recovery.Do(ctx, world, func(world *cohort.Comm) (err error) {
		j.world = world
		if j.env, err = hybrid.Join(world, config); err != nil {
			return err
		}
		if err = command(j); err != nil {
			_ = j.env.Close() // err is what matters
			return err
		}
		return j.env.Close()
	})
	j.progress.end()
	j.world = j.recovery.World(world)
	rank := j.world.Rank() // read before Close
	if err == nil {
		err = j.world.Close()
	} else if errors.Is(err, cohort.ErrClosed) { // the job shrinks, and this rank leaves it
		_ = j.world.Close() // others may have left it before
		return 0
	}
	if err != nil {
		return j.failed(err, rank, stderr)
	}
	return 0
}

// named writes lines with the name of the command in front.
type named struct{ w io.Writer }

func (n named) Write(line []byte) (int, error) {
	if _, err := n.w.Write(append([]byte("sddp: "), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// first reports whether this rank reads, writes and prints.
func (j *job) first() bool { return j.world.Rank() == 0 }

// failed prints what went wrong and returns the exit status. Rank 0 prints an error that all ranks
// have; a rank that failed alone prints its own.
func (j *job) failed(err error, rank int, stderr io.Writer) int {
	sig := j.signals.first()
	if errors.Is(err, sddp.ErrStopped) {
		if sig == nil { // another rank received it
			sig = syscall.SIGTERM
		}
		_ = j.world.Close() // err is what matters
	}
	status := cli.StatusFailed
	if sig != nil {
		status = statusOf(sig)
	}
	var step *hybrid.StepError
	if errors.As(err, &step) && step.Peer {
		return status // the rank that failed reports it
	}
	if rank != 0 {
		// Otherwise rank 0 or the rank that failed prints it; ErrNotSupported is the same on all.
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
	var next string
	switch {
	case hasCheckpoints && at.Iterations > 0:
		next = fmt.Sprintf("continue with --resume %s (%d iterations are saved)", at.Dir, at.Iterations)
	case j.saved && !j.written:
		next = fmt.Sprintf("continue with --resume %s (the training is saved)", j.o.checkpointDir())
	}
	switch {
	case sig == nil:
		fmt.Fprintf(stderr, "sddp: %v\n", err)
		if next != "" {
			fmt.Fprintf(stderr, "sddp: %s\n", next)
		}
	case j.written:
		fmt.Fprintf(stderr, "sddp: %s after the files were written\n", ended(sig))
	case next != "":
		fmt.Fprintf(stderr, "sddp: %s; %s\n", ended(sig), next)
	default:
		fmt.Fprintf(stderr, "sddp: %s; nothing was written\n", ended(sig))
	}
	return status
}
