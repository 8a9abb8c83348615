package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort/internal/flight"
)

// A killed rank is started again on its host, and the ranks of a host that is lost are started on the one that is left. The
// state of the survivors is kept.
func TestRunOnHostsReplacesRanksAndHosts(t *testing.T) {
	n, kept := newNetwork(t), t.TempDir()
	j := startElastic(t, "-n", "4", "--restarts", "3", "--flight", kept, n.ssh, "--hosts", "127.0.0.1,127.0.0.2")
	g, _ := j.await(-1, 4)
	agents := []int{parent(t, j.processOf(0)), parent(t, j.processOf(3))}
	for _, rank := range []int{3, 0} {
		syscall.Kill(j.processOf(rank), syscall.SIGKILL)
		g, _ = j.await(g, 4)
		if got := parent(t, j.processOf(rank)); got != agents[rank/2] {
			t.Errorf("rank %d is started again by process %d, want %d, the agent of its host", rank, got, agents[rank/2])
		}
	}
	lives := []int{hold(t, j.processOf(2)), hold(t, j.processOf(3))}
	syscall.Kill(agents[1], syscall.SIGKILL)
	j.await(g, 4)
	for _, life := range lives {
		awaitEnd(t, "a rank of the host that was lost", life)
	}
	for rank := range 4 {
		if got := parent(t, j.processOf(rank)); got != agents[0] {
			t.Errorf("rank %d is a process of %d, want %d, the agent of the host that is left", rank, got, agents[0])
		}
	}
	text := j.end(4)
	n.nothingLeft(t)
	if dumps, _, err := flight.Read(kept); err != nil || len(dumps) != 4 {
		t.Errorf("got files of %d ranks (%v), want those of the last world, of 4", len(dumps), err)
	}
	for _, want := range []string{
		`cohort: rank 3 on 127\.0\.0\.2 was killed by signal 9 \(killed\) after [0-9.]+ s; starting it again \(restart 1 of 3\)`,
		`cohort: rank 0 on 127\.0\.0\.1 was killed by signal 9 \(killed\) after [0-9.]+ s; starting it again \(restart 2 of 3\)`,
		`cohort: host 127\.0\.0\.2 was lost after [0-9.]+ s \(.*\), and ranks 2, 3 with it; starting 2 ranks on other hosts \(restart 3 of 3\)`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(text) {
			t.Errorf("no line %s in:\n%s", want, text)
		}
	}
}

// A lost rank is started on a host that had none, a spare. Without a host that has room for it, it is not started, and the job ends.
func TestRunOnHostsKeepsLimits(t *testing.T) {
	n := newNetwork(t)
	j := startElastic(t, "-n", "2", "--restarts", "10", n.ssh, "--hosts", "127.0.0.1:1,127.0.0.2:1,localhost:1")
	g, _ := j.await(-1, 2)
	for range 2 {
		life := hold(t, j.processOf(0))
		syscall.Kill(parent(t, j.processOf(0)), syscall.SIGKILL)
		awaitEnd(t, "a rank of the host that was lost", life)
		if g == 0 {
			g, _ = j.await(g, 2)
		}
	}
	text := j.wait(255)
	for _, want := range []string{"cohort: host 127.0.0.1 was lost after ", "cohort: host localhost was lost after ", "cohort: rank 0 cannot be started: no host has room for it\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	n.nothingLeft(t)
}

// A spare that is silent when the job ends does not keep the launcher for long, however the job ends.
func TestRunOnHostsDoesNotWaitForSilentSpare(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: it lasts until a silent host is given up, twice; make test-all runs it")
	}
	n := newNetwork(t)
	for _, asked := range []bool{false, true} {
		j := startElastic(t, "-n", "1", "--restarts", "1", n.ssh, "--hosts", "127.0.0.1:1,127.0.0.2:1")
		j.await(-1, 1)
		syscall.Kill(shell(t, j.cmd, "127.0.0.2"), syscall.SIGSTOP)
		var text string
		if asked {
			j.cmd.Process.Signal(syscall.SIGTERM)
			text = j.wait(143)
		} else {
			text = j.end(1)
		}
		if want := `(?m)^cohort: host 127\.0\.0\.2 was lost after [0-9.]+ s \(no message for 4s\)$`; !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no line %s in:\n%s", want, text)
		}
	}
}

// A job grows on the hosts that have room, also when its ranks have got other numbers. It is not asked to have more ranks than the
// hosts have slots.
func TestScaleOnHostsKeepsLimits(t *testing.T) {
	n := newNetwork(t)
	j := startElastic(t, "-n", "4", "--elastic", "1:5", n.ssh, "--hosts", "127.0.0.1:2,127.0.0.2:2")
	g, _ := j.await(-1, 4)
	agents := []int{parent(t, j.processOf(0)), parent(t, j.processOf(3))}
	for i, pid := range []int{j.processOf(0), j.processOf(1)} {
		syscall.Kill(pid, syscall.SIGKILL)
		g, _ = j.await(g, 3-i)
	}
	name := j.name(1, 5)
	if status, text := j.scale(name, "4"); status != 0 {
		t.Errorf("to 4 ranks: status %d, %s", status, text)
	}
	_, pids := j.await(g, 4)
	ranks := map[int]int{}
	for _, pid := range pids {
		ranks[parent(t, pid)]++
	}
	if ranks[agents[0]] != 2 || ranks[agents[1]] != 2 {
		t.Errorf("the hosts have %d and %d ranks, want 2 each", ranks[agents[0]], ranks[agents[1]])
	}
	want := "5 ranks need 1 slot more, but the hosts have 0 free;"
	if status, text := j.scale(name, "5"); status != 1 || !strings.Contains(text, want) {
		t.Errorf("to 5 ranks: status %d, %s, want 1 and %q", status, text, want)
	}
	j.end(4)
	n.nothingLeft(t)
}
