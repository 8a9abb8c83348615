//go:build unix

package spawn

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// describe returns a rank's status in the shell's form (128 + signal), and a text such as
// "exited with status 3".
func describe(e exit) (status int, how string) {
	if e.err != nil {
		return 1, fmt.Sprintf("could not be waited for (%v)", e.err)
	}
	w := e.wait
	if !w.Signaled() {
		return w.ExitStatus(), fmt.Sprintf("exited with status %d", w.ExitStatus())
	}
	how = fmt.Sprintf("was killed by signal %d (%v)", int(w.Signal()), w.Signal())
	if w.CoreDump() {
		how += ", core dumped,"
	}
	return 128 + int(w.Signal()), how
}

// reap waits for a process that this one started. at is the time of its end; zero
// means the time at which reap returns.
func reap(rank int, p *os.Process, at time.Time) exit {
	state, err := p.Wait()
	if at.IsZero() {
		at = time.Now()
	}
	e := exit{rank: rank, err: err, at: at}
	if err == nil {
		e.wait, _ = state.Sys().(syscall.WaitStatus) // it is one on all systems with process groups
	}
	return e
}
