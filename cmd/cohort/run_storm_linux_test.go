package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// Ranks are killed at random times, rank 0 among them, also while the others rejoin. The data are right, and nothing is left.
func TestDataSurviveRandomKills(t *testing.T) {
	kills := 1000
	if testing.Short() {
		kills = 6
	}
	for _, c := range []struct {
		backend string
		ranks   int
		kills   int
	}{{"shm", 4, kills}, {"tcp", 4, kills}, {"shm", 32, kills / 20}, {"hosts", 4, kills / 5}} {
		t.Run(fmt.Sprint(c.backend, "/", c.ranks), func(t *testing.T) {
			if testing.Short() && c.ranks > 4 {
				t.Skip("left out with -short: 32 processes on few processors; make test-all runs it")
			}
			args := []string{"--backend", c.backend}
			if c.backend == "hosts" {
				if testing.Short() {
					t.Skip("left out with -short: an sshd and ten processes; make test-all runs it")
				}
				n := newNetwork(t)
				defer n.nothingLeft(t)
				args = []string{n.ssh, "--hosts", "127.0.0.1,127.0.0.2"}
			}
			storm(t, c.ranks, c.kills, args...)
		})
	}
}

func storm(t *testing.T, ranks, kills int, args ...string) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	j := startElastic(t, append([]string{"-n", strconv.Itoa(ranks), "--restarts", "1000000"}, args...)...)
	_, pids := j.await(-1, ranks)
	files := openFiles(j.cmd.Process.Pid)
	var took []time.Duration
	for n := 0; n < kills; {
		gone := map[int]bool{}
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond) // on purpose: above 0.2 s a start is not put off
		var last time.Time
		for more := true; more; more = r.IntN(4) == 0 { // the second perhaps while the others rejoin
			if last != (time.Time{}) {
				time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond) // on purpose: a second rank dies at any moment
			}
			if pid := pids[r.IntN(ranks)]; !gone[pid] {
				gone[pid], last = true, time.Now()
				syscall.Kill(pid, syscall.SIGKILL)
				n++
			}
		}
		j.until("the next generation", func() bool {
			for _, pid := range j.pids {
				if gone[pid] {
					return false
				}
			}
			return j.size == ranks && j.arrived == ranks
		})
		j.mu.Lock()
		pids = pids[:0]
		for i := range ranks {
			pids = append(pids, j.pids[i])
		}
		took = append(took, j.first[j.latest].Sub(last))
		j.mu.Unlock()
	}
	if err := leak.Above("descriptors of the launcher", func() int { return openFiles(j.cmd.Process.Pid) }, files); err != nil {
		t.Error(err)
	}
	j.end(ranks)
	slices.Sort(took)
	t.Logf("from %d kills to the first operation of the next world: %v in half of them, %v in 99 of 100, %v at most",
		len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
