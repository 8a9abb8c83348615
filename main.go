package cohort

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main runs a program's body as one rank of the job that this process was started in, and closes the
// world. It is all that a program's main function needs:
//
//	func main() { cohort.Main(body) }
//
// SIGINT and SIGTERM end ctx, which governs the world as the context of [Init] does: operations end with
// ErrCanceled, and a body can save what its own rank has. A second signal, at least half a second later, ends the process.
//
// If body returns an error or panics, Main prints the error and this rank's number to standard error,
// ends the job as [Comm.CloseWith] does, and exits with status 1. It also does so for an error of Init or
// of Close. Otherwise Main returns. A program that needs a [Config] calls Init and CloseWith itself.
//
// Collective: all processes of the job call it, once.
func Main(body func(ctx context.Context, world *Comm) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// One request to end can arrive as two signals: the system signals all processes, and the launcher
	// passes its own on.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(sameRequest, stop) })()
	world, err := Init(ctx, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // it names the rank
		os.Exit(1)
	}
	err = errGoexit
	defer func() {
		complain := func(err error) {
			if err != nil {
				fmt.Fprintln(os.Stderr, ofRank(world.Rank(), err))
			}
		}
		complain(err) // before the others can print what follows from it
		closed := world.base().CloseWith(cause(err))
		if complain(closed); err != nil || closed != nil {
			os.Exit(1)
		}
	}()
	err = guard(func() error { return body(ctx, world) })
}

const sameRequest = 500 * time.Millisecond
