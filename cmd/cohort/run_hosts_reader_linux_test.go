package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSlowReaderOfHostsLosesNothing has a rank fail, of whose output a part is still on the host because the reader
// waits. The reader begins after the time in which hosts confirm that their ranks have ended.
func TestSlowReaderOfHostsLosesNothing(t *testing.T) {
	n := newNetwork(t)
	cmd, out, errs := blocked(t, n, "head -c 1190000 /dev/zero | tr '\\0' x; echo; echo last words; exit 3")
	time.Sleep(6 * time.Second) // on purpose: the reader begins later than hosts wait for it
	text, err := io.ReadAll(out)
	cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 3 || err != nil || bytes.Count(text, []byte("x")) != 1190000 || !bytes.HasSuffix(text, []byte("\nlast words\n")) {
		t.Errorf("status %d, want 3 and all output; got %d bytes: %v\n%s", status, len(text), err, errs)
	}
	if strings.Contains(errs.String(), "giving it up") {
		t.Errorf("a host that waits for the reader is given up:\n%s", errs)
	}
	n.nothingLeft(t)
}

// TestRequestsEndWaitForReaderOfHosts has a reader that never reads.
func TestRequestsEndWaitForReaderOfHosts(t *testing.T) {
	n := newNetwork(t)
	cmd, _, errs := blocked(t, n, "exec yes")
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-tick.C:
			cmd.Process.Signal(syscall.SIGTERM)
			continue
		case <-ended:
		}
		break
	}
	if status := cmd.ProcessState.ExitCode(); status != 143 {
		t.Errorf("status %d, want 143\n%s", status, errs)
	}
}

// blocked starts one rank on a host, and returns when it has written: its output is not read.
func blocked(t *testing.T, n *network, script string) (cmd *exec.Cmd, out *os.File, errs *strings.Builder) {
	t.Helper()
	out, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	cmd, errs = cohortCommand(t, n.line("--hosts", "127.0.0.1", "-n", "1", "--grace", "0", "--tag=false", "sh", "-c", script)...), new(strings.Builder)
	cmd.Stdout, cmd.Stderr = to, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	to.Close()
	watch(t, cmd)
	poll := []unix.PollFd{{Fd: int32(out.Fd()), Events: unix.POLLIN}}
	for err := error(unix.EINTR); err == unix.EINTR; {
		_, err = unix.Poll(poll, -1)
	}
	return cmd, out, errs
}
