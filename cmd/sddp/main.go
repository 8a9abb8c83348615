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
	"os/signal"
	"syscall"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/sddp"
)

// The statuses the command ends with.
const (
	statusFailed      = 1
	statusUsage       = 2
	statusInterrupted = 130
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

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env, err := hybrid.Start(ctx, &hybrid.Config{Threads: o.threads, Pin: pool.Policy(o.pin), Summary: named{stderr}})
	if err != nil {
		var step *hybrid.StepError
		if !errors.As(err, &step) || !step.Peer { // else that rank tells
			fmt.Fprintf(stderr, "sddp: %v\n", err)
		}
		return statusFailed
	}
	j := &job{ctx: ctx, env: env, world: env.World, o: o, out: stdout, progress: newProgress(env.World.Rank(), stderr, o.iterations)}
	err = cmd.run(j)
	j.progress.end()
	if err == nil {
		err = env.Close()
	}
	if err != nil {
		return j.failed(err, stderr)
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
	env      *hybrid.Env
	world    *cohort.Comm
	o        *options
	out      io.Writer
	progress *progress
	written  bool // the files, if any were asked for
}

// first reports whether this is the rank that reads, writes and prints.
func (j *job) first() bool { return j.world.Rank() == 0 }

// failed says what went wrong and returns the status to end with. An error that all ranks have is
// told by rank 0, one that a rank has for itself by that rank.
func (j *job) failed(err error, stderr io.Writer) int {
	switch {
	case j.ctx.Err() != nil && j.first() && j.written:
		fmt.Fprintln(stderr, "sddp: interrupted after the files were written")
	case j.ctx.Err() != nil && j.first():
		fmt.Fprintln(stderr, "sddp: interrupted; nothing was written")
	case j.ctx.Err() != nil || errors.Is(err, sddp.ErrPeer) && !j.first():
		// Another rank tells.
	case j.first():
		fmt.Fprintf(stderr, "sddp: %v\n", err)
	default:
		fmt.Fprintf(stderr, "sddp: rank %d: %v\n", j.world.Rank(), err)
	}
	if j.ctx.Err() != nil {
		return statusInterrupted
	}
	return statusFailed
}
