package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// outsiders are programs of other processes. The test binary starts itself again, with the name of one.
var outsiders = map[string]func(address string) error{}

func TestMain(m *testing.M) {
	if name := os.Getenv("NODE_TEST_OUTSIDER"); name != "" {
		if err := outsiders[name](os.Getenv("NODE_TEST_ADDRESS")); err != nil {
			fmt.Fprintln(os.Stderr, "outsider:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func init() {
	// Programs for TestOtherUserCannotJoin that do not join: processes of another user at the socket.
	outsiders["listen"] = func(addr string) error {
		ln, err := net.Listen("unix", addr)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		c.Read(make([]byte, 1))
		return nil
	}
	outsiders["connect"] = func(addr string) error {
		c, err := net.Dial("unix", addr)
		for err != nil && errors.Is(err, syscall.ECONNREFUSED) {
			time.Sleep(time.Millisecond) // poll
			c, err = net.Dial("unix", addr)
		}
		if err != nil {
			return err
		}
		b := make([]byte, messageSize)
		n, _ := c.Read(b)
		if !strings.Contains(string(b[:n]), "not the job's user") {
			return fmt.Errorf("answered %q, want a refusal", b[:n])
		}
		return nil
	}
}

// Processes of another user are turned away on both sides of the socket.
func TestOtherUserCannotJoin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user; run the tests as root to have this tested")
	}
	const nobody = 65534
	dir := t.TempDir()
	exe := dir + "/test" // nobody may not be able to run the binary where it is
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for d := dir; strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = d[:strings.LastIndex(d, "/")] {
		os.Chmod(d, 0o755)
	}
	start := func(name, job string) *exec.Cmd {
		c := exec.Command(exe)
		c.Env = []string{"NODE_TEST_OUTSIDER=" + name, "NODE_TEST_ADDRESS=" + address(job)}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		c.Stderr = os.Stderr
		return c
	}

	job := "listen" + t.Name() + fmt.Sprint(os.Getpid())
	cmd := start("listen", job)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 10))
	_, err = Join(t.Context(), Config{Rank: 1, Ranks: []int{0, 1}, Name: job})
	if err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("joining at another user's socket: %v", err)
	}
	cmd.Wait()

	job = "connect" + t.Name() + fmt.Sprint(os.Getpid())
	cmd = start("connect", job)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		cancel() // rank 0 waits for a rank 1 that never comes
	}()
	_, err = Join(ctx, Config{Rank: 0, Ranks: []int{0, 1}, Name: job})
	if err == nil || !strings.Contains(err.Error(), "rank 1 did not join") || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("rank 0: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the process of another user: %v", err)
	}
}

func init() {
	outsiders["lead"] = func(job string) error {
		_, err := Join(context.Background(), Config{Rank: 0, Ranks: []int{0, 1}, Name: job, Job: job})
		return err
	}
}

// A rank that is not in the namespaces of rank 0 learns at once which of them is another one, and what to do.
func TestRankInOtherNamespaceIsSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make namespaces; run the tests as root to have this tested")
	}
	for name, space := range map[string]struct {
		flag uintptr
		want string
	}{
		"network": {syscall.CLONE_NEWNET, "rank 0 (process %d) is in another network namespace; start all ranks"},
		"PID":     {syscall.CLONE_NEWPID, "rank 1 is in another PID namespace (it is process %d there and 0 here); start all ranks in one, or use backend tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			job := t.Name() + fmt.Sprint(os.Getpid())
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{"NODE_TEST_OUTSIDER=lead", "NODE_TEST_ADDRESS=" + job, "COHORT_JOB=" + job, "COHORT_RANK=0"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: space.flag}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := Join(ctx, Config{Rank: 1, Ranks: []int{0, 1}, Name: job, Job: job})
			pid := cmd.Process.Pid
			if space.flag == syscall.CLONE_NEWPID {
				pid = os.Getpid()
			}
			if want := fmt.Sprintf(space.want, pid); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			// Processes that are known share the namespaces. To look at all processes on every rank takes time that is
			// quadratic in the size of the job.
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = Join(ctx, Config{Rank: 1, Ranks: []int{0, 1}, PIDs: []int{cmd.Process.Pid, os.Getpid()}, Name: job + " late", Job: job})
			if err == nil || !strings.Contains(err.Error(), "rank 0 did not appear") {
				t.Errorf("with known processes: got %v, want that rank 0 did not appear", err)
			}
		})
	}
}
