package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/remote"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

func init() {
	// At its other end ssh starts a copy of the test binary too, without its variables.
	rankPrograms[remote.AgentCommand] = func(boot string) int {
		return remote.Agent(os.Stdin, os.Stdout, boot, version())
	}
}

// network is an sshd of the test's own on the loopback interface, at which 127.0.0.1, 127.0.0.2 and
// localhost are hosts. Programs that it starts have folder as HOME, so their shells read no start-up files of the user.
type network struct {
	folder string // of keys and configuration
	tmp    string // TMPDIR of what is started over ssh
	ssh    string // --ssh=…
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	sshd, keygen := need.Program(t, "sshd"), need.Program(t, "ssh-keygen")
	need.Program(t, "ssh")
	n := &network{folder: t.TempDir(), tmp: t.TempDir()}
	keys := map[string]string{}
	for _, name := range []string{"host", "user"} {
		path := filepath.Join(n.folder, name)
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
		public, err := os.ReadFile(path + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = string(public)
	}
	if os.Geteuid() == 0 { // where sshd of Debian and its kin goes to when it is root
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.write(t, "authorized", keys["user"])
	var err error
	for range 5 { // another may take the port
		port := freePort(t)
		n.write(t, "sshd_config", fmt.Sprintf(`ListenAddress 127.0.0.1:%[1]d
ListenAddress 127.0.0.2:%[1]d
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 100
LogLevel INFO
SetEnv TMPDIR=%[3]s HOME=%[2]s
`, port, n.folder, n.tmp))
		known := ""
		for _, host := range []string{"127.0.0.1", "127.0.0.2", "localhost"} {
			known += fmt.Sprintf("[%s]:%d %s", host, port, keys["host"])
		}
		n.write(t, "known", known)
		n.write(t, "ssh_config", fmt.Sprintf("Host *\nPort %d\nIdentitiesOnly yes\nIdentityAgent none\nIdentityFile %s/user\n"+
			"UserKnownHostsFile %[2]s/known\nGlobalKnownHostsFile none\nStrictHostKeyChecking ask\nAddressFamily inet\n", port, n.folder))
		if err = n.serve(t, sshd); err == nil {
			n.ssh = "--ssh=ssh -F " + filepath.Join(n.folder, "ssh_config")
			return n
		}
	}
	t.Fatalf("sshd does not start: %v", err)
	return nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (n *network) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve starts sshd and waits until it listens at both addresses.
func (n *network) serve(t *testing.T, sshd string) error {
	t.Helper()
	cmd := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(n.folder, "sshd_config"))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, listens := "", 0
	s := bufio.NewScanner(said)
	for listens < 2 && s.Scan() {
		lines += s.Text() + "\n"
		if strings.HasPrefix(s.Text(), "Server listening on 127.0.0.") {
			listens++
		}
	}
	if listens < 2 {
		cmd.Wait()
		return errors.New(lines)
	}
	go io.Copy(io.Discard, said)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return nil
}

// line is a command line with ranks on hosts.
func (n *network) line(args ...string) []string {
	return append([]string{"run", n.ssh}, args...)
}

// nothingLeft checks that what was started over ssh has left no file. The keeper of an agent that was killed removes the agent's
// files after the job may have ended.
func (n *network) nothingLeft(t *testing.T) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for {
		left, err := filepath.Glob(filepath.Join(n.tmp, "*"))
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("left behind: %v, %v", left, err)
			return
		}
		time.Sleep(10 * time.Millisecond) // poll
	}
}

// hostsJob is a job of four ranks on two hosts, while it runs.
type hostsJob struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr *bytes.Buffer
	ranks  []int  // processes
	agents [2]int // those of ranks 0 and 1, and of 2 and 3
	lives  []int  // descriptors that become readable when ranks, their children, agents, and keepers end
}

// children returns the processes that a process has started.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, f := range strings.Fields(string(b)) {
			child, _ := strconv.Atoi(f)
			all = append(all, child)
		}
	}
	return all
}

// start starts a job whose ranks execute first, start a child, and execute script.
func (n *network) start(t *testing.T, first, script string, options ...string) *hostsJob {
	t.Helper()
	args := append(append([]string{"-n", "4", "--hosts", "127.0.0.1,127.0.0.2"}, options...), "sh", "-c", first+"sleep 1000 & echo pids $$ $! $PPID; "+script)
	j := &hostsJob{cmd: cohortCommand(t, n.line(args...)...), stderr: new(bytes.Buffer), ranks: make([]int, 4)}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.cmd.Stderr = j.stderr
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.lines = bufio.NewScanner(out)
	for range j.ranks {
		var rank, pid, child, agent int
		if !j.lines.Scan() {
			j.cmd.Wait()
			t.Fatalf("the output ends; stderr:\n%s", j.stderr)
		}
		if _, err := fmt.Sscanf(j.lines.Text(), "[%d] pids %d %d %d", &rank, &pid, &child, &agent); err != nil {
			t.Fatalf("%v: %s", err, j.lines.Text())
		}
		j.ranks[rank], j.agents[rank/2] = pid, agent
		j.lives = append(j.lives, hold(t, pid), hold(t, child))
	}
	for _, agent := range j.agents {
		j.lives = append(j.lives, hold(t, agent))
		for _, pid := range children(t, agent) {
			if !slices.Contains(j.ranks, pid) { // the keeper
				j.lives = append(j.lives, hold(t, pid))
			}
		}
	}
	if len(j.lives) != 12 {
		t.Errorf("the job has %d processes on its hosts, want 4 ranks with a child each, 2 agents, and their keepers", len(j.lives))
	}
	return j
}

// shell returns a launcher's ssh to a host.
func shell(t *testing.T, launcher *exec.Cmd, host string) int {
	t.Helper()
	for _, pid := range children(t, launcher.Process.Pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := strings.Split(string(line), "\x00"); slices.Contains(words, host) {
			return pid
		}
	}
	t.Fatalf("there is no ssh to %s", host)
	return 0
}

// parent returns the process that started another.
func parent(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	up, _ := strconv.Atoi(f[1])
	return up
}

// end waits for the end of everything.
func (j *hostsJob) end(t *testing.T, n *network) (status int, stdout string) {
	t.Helper()
	for j.lines.Scan() {
		stdout += j.lines.Text() + "\n"
	}
	j.cmd.Wait()
	for _, fd := range j.lives {
		awaitEnd(t, "a process on a host", fd)
	}
	n.nothingLeft(t)
	return j.cmd.ProcessState.ExitCode(), stdout
}
