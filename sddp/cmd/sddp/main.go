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
	env      *hybrid.Env
	recovery *sddp.Recovery // nil without --resilient
	o        *options
	out      io.Writer
	progress *progress
	outputs  []output
	written  bool // the files, if any were asked for
	saved    bool // the training is in a checkpoint
}

// start joins the job, runs a command on its ranks, and returns the exit status.
func start(command func(*job) error, o *options, stdout, stderr *os.File) int {
	ctx, signals := watchSignals()
	defer signals.end()
	config := &hybrid.Config{Job: &cohort.Config{Resilient: o.resilient}, Threads: o.threads, Pin: pool.Pinning(o.pin)}
	if !o.quiet {
		config.Summary = named{stderr}
	}
	env, err := hybrid.Start(ctx, config)
	if sig := signals.first(); err != nil && sig != nil {
		fmt.Fprintf(stderr, "sddp: %s before all ranks had joined; nothing was written\n", ended(sig))
		return statusOf(sig)
	}
	if err != nil {
		var step *hybrid.StepError
		if !errors.As(err, &step) || !step.Peer { // else the rank that failed reports it
			fmt.Fprintf(stderr, "sddp: %v\n", err)
		}
		return cli.StatusFailed
	}
	j := &job{ctx: ctx, signals: signals, env: env, o: o, out: stdout}
	j.progress = newProgress(j.first, stderr, o.quiet)
	if o.resilient {
		j.recovery = &sddp.Recovery{Lost: func(l sddp.Loss) { j.progress.warn(l) }}
	}
	err = command(j)
	j.progress.end()
	rank := j.world().Rank() // read before Close: among the ranks that are left
	if err == nil {
		err = errors.Join(j.recovery.Close(), env.Close())
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

// world returns the communicator of the ranks that are left.
func (j *job) world() *cohort.Comm { return j.recovery.World(j.env.World) }

// first reports whether this rank reads, writes and prints.
func (j *job) first() bool { return j.world().Rank() == 0 }

// failed prints what went wrong and returns the exit status. Rank 0 prints an error that all ranks
// have; a rank that failed alone prints its own.
func (j *job) failed(err error, rank int, stderr io.Writer) int {
	sig := j.signals.first()
	if errors.Is(err, sddp.ErrStopped) {
		if sig == nil { // another rank received it
			sig = syscall.SIGTERM
		}
		_ = errors.Join(j.recovery.Close(), j.env.Close()) // err is what matters
	}
	status := cli.StatusFailed
	if sig != nil {
		status = statusOf(sig)
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
