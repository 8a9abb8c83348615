//go:build linux

package jobtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// The part of a rank of TestRankLostAcrossHostsIsNamed is in its environment.
const (
	lostVictim = "NETLAB_VICTIM"
	lostHow    = "NETLAB_HOW"
	dyingMark  = "dying"
)

// monotonic is a clock that all processes of this machine have.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// die ends this process as a crash does, having printed when that was. The kernel ends its connections: by FIN where
// everything that has come was read, or by RST if reset.
func die(reset bool) error {
	mark, _, err := netlab.Marker()
	if err != nil {
		return err
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return err
	}
	for _, path := range fds {
		if to, _ := os.Readlink(path); reset && strings.HasPrefix(to, "socket:") {
			fd, err := strconv.Atoi(filepath.Base(path))
			if err == nil {
				err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			}
			if err != nil {
				return err
			}
		}
	}
	if err := mark(dyingMark); err != nil {
		return err
	}
	fmt.Println(int64(monotonic()))
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// noticed is what a survivor says of the loss.
type noticed struct {
	At    time.Duration
	Error string
	Lost  bool   // that is what the error is
	Then  string // the error of the next operation, if it is another
}

// loseOne is a rank's part: one dies while the others wait, one of them for it and the rest for another, or in the
// middle of their work.
func loseOne(w *cohort.Comm) error {
	victim, err := strconv.Atoi(os.Getenv(lostVictim))
	if err != nil {
		return err
	}
	chief := 0 // who waits for the victim
	if victim == 0 {
		chief = 1
	}
	how, one := os.Getenv(lostHow), []byte{1}
	if how == "busy" {
		if w.Rank() == victim {
			go func() {
				time.Sleep(100 * time.Millisecond) // on purpose: the rank dies in the middle of its work
				if err := die(false); err != nil {
					fmt.Println(err)
				}
			}()
		}
		x := make([]int64, 5000)
		for err == nil {
			err = cohort.Allreduce(w, x, make([]int64, len(x)), cohort.Sum)
		}
	} else {
		// All others are there, and have nothing more to say to the victim.
		switch w.Rank() {
		case victim:
			if _, err := cohort.Recv(w, one, chief, 0); err != nil {
				return err
			}
			return die(how == "reset")
		case chief:
			for r := range w.Size() {
				if r == victim || r == chief {
					continue
				}
				if _, err := cohort.Recv(w, one, r, 0); err != nil {
					return err
				}
			}
			if err := cohort.Send(w, one, victim, 0); err != nil {
				return err
			}
			_, err = cohort.Recv(w, one, victim, 1)
		default:
			if err := cohort.Send(w, one, chief, 0); err != nil {
				return err
			}
			_, err = cohort.Recv(w, one, chief, 1)
		}
	}
	n := noticed{At: monotonic(), Lost: errors.Is(err, cohort.ErrPeerLost)}
	if err != nil {
		n.Error = err.Error()
	}
	if err := w.Barrier(); !errors.Is(err, cohort.ErrPeerLost) {
		n.Then = fmt.Sprint(err)
	}
	return json.NewEncoder(os.Stdout).Encode(n)
}

// TestRankLostAcrossHostsIsNamed has a rank die, on a host of its own or on one whose ranks share memory. Between hosts a packet
// takes 20 ms. All others have ErrPeerLost that names the rank, because its connections end and not by its silence. In one of
// three runs at least, the connections end as they should, by FIN or by RST.
func TestRankLostAcrossHostsIsNamed(t *testing.T) {
	asRank(t, loseOne)
	if !needHosts(t) {
		return
	}
	const (
		ranks = 4
		delay = 20 * time.Millisecond
		tries = 3
	)
	for _, c := range []struct {
		what, how string
		victim    int
		connect   string
		ends      byte // by which all its connections must end; 0: either may be
		hosts     []int
	}{
		{"FIN", "quiet", 2, "start", netlab.FIN, []int{0, 1, 2, 3}},
		{"RST", "reset", 0, "start", netlab.RST, []int{0, 1, 2, 3}},
		{"at work", "busy", 1, "start", 0, []int{0, 1, 2, 3}},
		{"FIN, connections on demand", "quiet", 2, "demand", netlab.FIN, []int{0, 1, 2, 3}},
		{"RST of the hub, connections on demand", "reset", 0, "demand", netlab.RST, []int{0, 1, 2, 3}},
		{"links through memory and network", "quiet", 1, "start", netlab.FIN, []int{0, 0, 1, 1}},
		{"links through memory and network, at work", "busy", 2, "start", 0, []int{0, 0, 1, 1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			shared := len(slices.Compact(slices.Clone(c.hosts))) < ranks // with the victim
			for try := 1; ; try++ {
				n, err := netlab.New(netlab.Config{Hosts: ranks + 1, Seed: uint64(try)})
				if err != nil {
					t.Fatal(err)
				}
				n.Set(-1, -1, netlab.Path{Delay: delay})
				n.Record()
				outcomes := startRanksOn(t, n, c.hosts, "COHORT_TCP_CONNECT="+c.connect, lostHow+"="+c.how, fmt.Sprint(lostVictim, "=", c.victim))()
				n.Close()
				died, err := strconv.ParseInt(strings.TrimSpace(outcomes[c.victim].text), 10, 64)
				if err != nil || fmt.Sprint(outcomes[c.victim].err) != "signal: killed" {
					t.Fatalf("the victim: %v, %q", outcomes[c.victim].err, outcomes[c.victim].text)
				}
				var took []time.Duration
				for rank, o := range outcomes {
					if rank == c.victim {
						continue
					}
					var r noticed
					if err := json.Unmarshal([]byte(o.text), &r); err != nil || o.err != nil {
						t.Fatalf("rank %d: %v, %s", rank, o.err, o.text)
					}
					if !r.Lost || !strings.Contains(r.Error, fmt.Sprintf("rank %d ", c.victim)) || strings.Contains(r.Error, "silent") || r.Then != "" {
						t.Errorf("rank %d: %q, and then %q; want the loss of rank %d", rank, r.Error, r.Then, c.victim)
					}
					took = append(took, r.At-time.Duration(died))
				}
				slices.Sort(took)
				fin, rst := endsAfter(n.Trace(), c.hosts[c.victim], ranks)
				worst := took[len(took)-1]
				t.Logf("all have it after %v, half after %v; %d connections end by FIN, %d by RST", worst, took[len(took)/2], fin, rst)
				right := c.ends == 0 || c.ends == netlab.FIN && fin > 0 && rst == 0 || c.ends == netlab.RST && fin == 0 && rst > 0
				switch {
				case took[0] < delay && !shared:
					t.Fatalf("a rank has it after %v, and nothing gets there before %v", took[0], delay)
				case right:
					return
				case try == tries:
					t.Fatalf("in none of %d runs all connections ended as they should", tries)
				}
			}
		})
	}
}

// endsAfter returns how many connections of a rank's host to other ranks' hosts end by FIN, and how many by RST, whichever comes
// first, after it has said that it dies.
func endsAfter(trace netlab.Trace, host, ranks int) (fin, rst int) {
	dying, ended := false, map[[3]int]bool{}
	for _, e := range trace {
		if e.From != host {
			continue
		}
		if e.Kind == netlab.Marked && e.Text == dyingMark {
			dying = true
		}
		if !dying || e.Kind != netlab.Sent || e.Flags&(netlab.FIN|netlab.RST) == 0 || e.To < 0 || e.To >= ranks {
			continue
		}
		key := [3]int{e.To, int(e.Ports[0]), int(e.Ports[1])}
		switch {
		case ended[key]:
		case e.Flags&netlab.RST != 0:
			rst++
		default:
			fin++
		}
		ended[key] = true
	}
	return fin, rst
}
