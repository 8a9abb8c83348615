package main

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// openJob is a job over tcp whose ranks listen as long as it lasts.
type openJob struct {
	cmd    *exec.Cmd
	pids   []int  // the launcher's and the ranks'
	secret string // where it is
	input  io.WriteCloser
	output *bufio.Scanner
	stderr strings.Builder
}

// startOpenJob starts a job, and returns when each rank has reported that it has joined.
func startOpenJob(t *testing.T, ranks int, how string) *openJob {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &openJob{cmd: cohortCommand(t, "run", "-n", strconv.Itoa(ranks), "--backend", "tcp", exe, busyProgram, how)}
	j.cmd.Env = append(j.cmd.Env, "COHORT_TCP_CONNECT=demand")
	j.cmd.Stderr = &j.stderr
	in, err := j.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watch(t, j.cmd)
	j.input, j.output, j.pids = in, bufio.NewScanner(out), make([]int, 1+ranks)
	j.pids[0] = j.cmd.Process.Pid
	for n := range ranks {
		if !j.output.Scan() {
			err := j.cmd.Wait()
			t.Fatalf("the job ended when %d of %d ranks were there: %v\n%s", n, ranks, err, &j.stderr)
		}
		var rank, pid int
		if _, err := fmt.Sscanf(j.output.Text(), "[%d] rank %d %s", &rank, &pid, &j.secret); err != nil {
			t.Fatalf("%v: %s", err, j.output.Text())
		}
		j.pids[1+rank] = pid
	}
	return j
}

// end ends the job's input, and returns the lines of the ranks that contain a word, and the launcher's output.
func (j *openJob) end(t *testing.T, word string) (ranks []string, launcher string) {
	t.Helper()
	j.input.Close()
	for j.output.Scan() {
		if strings.Contains(j.output.Text(), word) {
			ranks = append(ranks, j.output.Text())
		}
	}
	if err := j.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &j.stderr)
	}
	return ranks, j.stderr.String()
}

// listening returns the addresses at which a process listens for TCP.
func listening(t *testing.T, pid int) (at []netip.AddrPort) {
	t.Helper()
	mine := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fd) // it may be closed by now
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil && table == "tcp" {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line) // number, local, remote, state, queues, timer, retransmissions, user, timeout, inode
			if len(f) < 10 || f[3] != "0A" || !mine[f[9]] {
				continue
			}
			host, port, _ := strings.Cut(f[1], ":")
			a, err1 := hex.DecodeString(host)
			p, err2 := strconv.ParseUint(port, 16, 16)
			if err1 != nil || err2 != nil {
				t.Fatalf("%s: %q", table, line)
			}
			for i := 0; i+4 <= len(a); i += 4 { // words of a little-endian machine
				a[i], a[i+1], a[i+2], a[i+3] = a[i+3], a[i+2], a[i+1], a[i]
			}
			ip, _ := netip.AddrFromSlice(a)
			at = append(at, netip.AddrPortFrom(ip.Unmap(), uint16(p)))
		}
	}
	if len(at) == 0 {
		t.Fatalf("process %d listens nowhere", pid)
	}
	return at
}

// TestRunTCPHidesSecret checks what other users can see of a running job: the secret is in no process's arguments or
// environment, and no process listens at an address that other machines can reach.
func TestRunTCPHidesSecret(t *testing.T) {
	j := startOpenJob(t, 2, "")
	text, err := os.ReadFile(j.secret)
	if err != nil {
		t.Fatal(err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		t.Fatalf("%s has %d bytes: %v", j.secret, len(key), err)
	}
	forms := []string{
		string(key), hex.EncodeToString(key), strings.ToUpper(hex.EncodeToString(key)),
		base64.RawStdEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(key),
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	reported := 0
	for _, process := range all {
		for _, what := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(filepath.Join(process, what))
			if err != nil {
				continue // it has ended, or is another user's
			}
			for _, form := range forms {
				if strings.Contains(string(b), form) {
					t.Errorf("the secret is in %s/%s", process, what)
				}
			}
			if strings.Contains(string(b), "COHORT_SECRET_FILE="+j.secret+"\x00") {
				reported++
			}
		}
	}
	if reported != 2 {
		t.Errorf("%d processes have the path of the secret, want the two ranks", reported)
	}
	for i, pid := range j.pids {
		for _, a := range listening(t, pid) {
			if !a.Addr().IsLoopback() {
				t.Errorf("process %d of the job listens at %v", i, a)
			}
		}
	}
	if ranks, launcher := j.end(t, "refused"); len(ranks) > 0 || launcher != "" {
		t.Errorf("a job without unauthenticated peers prints %q and %q", ranks, launcher)
	}
}
