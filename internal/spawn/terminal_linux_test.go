package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("this system has no pseudo terminals: there is no /dev/ptmx")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	conn, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	conn.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// atTerminal starts a launcher of two ranks at a terminal, or a shell that does so. screen is what the terminal shows.
func atTerminal(t *testing.T, name string, shell ...string) (cmd *exec.Cmd, keyboard *os.File, screen *buffer) {
	t.Helper()
	master, slave := terminal(t)
	cmd, _, _ = launcher(t, 2, name)
	if shell != nil {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", shell[0], cmd.Path}, cmd.Args[1:]...)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	begin(t, cmd)
	slave.Close()
	screen = new(buffer)
	go io.Copy(screen, master)
	return cmd, master, screen
}

func TestRankReadsTerminal(t *testing.T) {
	cmd, keyboard, screen := atTerminal(t, "cat")
	screen.await(t, "[0] ready", 1)
	keyboard.WriteString("hello\n")
	screen.await(t, "[0] hello", 1) // it went through the launcher: the rank is in the background
	keyboard.WriteString("\x04")    // ^D
	screen.await(t, "[0] bytes: 6 error: <nil>", 1)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func init() { programs["ask"] = askProgram }

// askProgram has rank 0 ask a question, without a newline after it, and repeat the answer.
func askProgram([]string) {
	if me() == "0" {
		answer := ""
		fmt.Print("how many? ")
		fmt.Scan(&answer)
		fmt.Println("got", answer)
	}
}

func TestTerminalShowsQuestion(t *testing.T) {
	cmd, keyboard, screen := atTerminal(t, "ask")
	screen.await(t, "[0] how many? ", 1)
	keyboard.WriteString("42\n")
	screen.await(t, "got 42", 1)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestUnreadInputIsLeftForShell types what the ranks do not read, and half a line: the shell that has started the launcher
// reads it, but for one line that the launcher may have taken, and then shows.
func TestUnreadInputIsLeftForShell(t *testing.T) {
	const shell = `"$0" "$@"; read a; read b; echo "<$a><$b>"`
	cmd, keyboard, screen := atTerminal(t, "count", shell)
	ranks := pids(t, screen.await(t, "pids", 2))
	keyboard.WriteString("one\ntwo\nthr")
	screen.await(t, "thr", 1) // the terminal shows what is typed
	syscall.Kill(ranks[0], syscall.SIGKILL)
	screen.await(t, "was killed by signal 9", 1)
	for pid := others(t, cmd.Process.Pid, nil); len(pid) > 0; pid = others(t, cmd.Process.Pid, nil) {
		time.Sleep(time.Millisecond) // poll until the launcher has ended
	}
	keyboard.WriteString("ee\n")
	want := "<one><two>"
	text := screen.await(t, "<", 2)
	if strings.Contains(text, `rank 0 has not read this input: "one\n"`) {
		want = "<two><three>"
	}
	if !strings.Contains(text, want) {
		t.Errorf("the terminal shows\n%s", text)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStopAndContinueReachRanks(t *testing.T) {
	cmd, stdout, _ := launcher(t, 2, "wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a job of a shell, which the test is
	begin(t, cmd)
	stdout.await(t, "ready", 2)
	cmd.Process.Signal(syscall.SIGTSTP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
	}
	if !status.Stopped() {
		t.Fatalf("the launcher did not stop: %v", status)
	}
	cmd.Process.Signal(syscall.SIGCONT)
	stdout.await(t, "got continued", 2)
	cmd.Process.Signal(syscall.SIGTERM)
	stdout.await(t, "got terminated", 2)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
