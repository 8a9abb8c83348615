package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// The network is cut between host b and the others, or between the hosts only: a launcher is on a third one. The ranks of host b
// end, and others take their places. No world has two processes of one rank, also when the network is back.
func TestCutNetworkUnderLauncher(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: it lasts until a silent host is given up; make test-all runs it")
	}
	t.Setenv("COHORT_HEARTBEAT", "2s")
	t.Setenv("COHORT_TCP_SHM", "0") // the hosts are namespaces of one machine
	const launcher, a, b = 0, 1, 2
	cut := netlab.Path{Cut: true}
	for _, c := range []struct {
		name     string
		cut      func(*netlab.Net)
		lost     bool // the launcher loses host b
		restarts string
	}{
		{"host", func(n *netlab.Net) { n.Isolate(b, true) }, true, "1"},
		{"between hosts", func(n *netlab.Net) { n.Set(a, b, cut); n.Set(b, a, cut) }, false, "100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			net, err := netlab.New(netlab.Config{Hosts: 3})
			if errors.Is(err, netlab.ErrUnavailable) {
				need.MissingRight(t, "no network can be made here, which takes root: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer net.Close()
			n := newNetwork(t)
			n.serveOn(t, net, a, b)
			j := startElasticBy(t, func(cmd *exec.Cmd) error { return net.Start(launcher, cmd) },
				"-n", "4", "--restarts", c.restarts, n.ssh+" -o StrictHostKeyChecking=no", "--hosts", net.Addr(a).String()+","+net.Addr(b).String())
			g, _ := j.await(-1, 4)
			lives := []int{hold(t, j.processOf(2)), hold(t, j.processOf(3))}
			c.cut(net)
			for _, life := range lives {
				awaitEnd(t, "a rank that is cut off", life)
			}
			if c.lost {
				g, _ = j.await(g, 4)
			}
			net.Set(-1, -1, netlab.Path{})
			if !c.lost {
				j.await(g, 4)
			}
			text := j.end(4)
			n.nothingLeft(t)
			seen := map[string]bool{}
			for line := range strings.Lines(text) {
				if m := elasticLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
					if at := m[1] + " in " + m[2]; seen[at] {
						t.Errorf("two processes are rank %s in generation %s:\n%s", m[1], m[2], text)
					} else {
						seen[at] = true
					}
				}
			}
			if lost := strings.Contains(text, " was lost after "); lost != c.lost {
				t.Errorf("a host was lost: %v, want %v:\n%s", lost, c.lost, text)
			}
		})
	}
}

// serveOn starts an sshd on each of the hosts of a network.
func (n *network) serveOn(t *testing.T, net *netlab.Net, hosts ...int) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(n.folder, "sshd_config"))
	if err != nil {
		t.Fatal(err)
	}
	port, rest, _ := strings.Cut(after(string(config), "ListenAddress 127.0.0.1:"), "\n")
	_, rest, _ = strings.Cut(rest, "\n") // the other address
	n.write(t, "hosts_config", "Port "+port+"\n"+rest)
	for _, host := range hosts {
		cmd := exec.Command(need.Program(t, "sshd"), "-D", "-e", "-f", filepath.Join(n.folder, "hosts_config"))
		said, err := cmd.StderrPipe()
		if err == nil {
			err = net.Start(host, cmd)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, lines := bufio.NewScanner(said), ""
		for !strings.Contains(lines, "Server listening") {
			if !s.Scan() {
				t.Fatalf("sshd does not start:\n%s", lines)
			}
			lines += s.Text() + "\n"
		}
		go io.Copy(io.Discard, said)
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
}
