package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// linked returns the ranks with which c has a link.
func linked(c *comm) (list []int) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for r, p := range c.e.peers {
		if p != nil && p.link != nil {
			list = append(list, r)
		}
	}
	return list
}

// Two ranks have a link only if they send each other messages, or one is the hub.
func TestRanksHaveTheLinksTheyNeed(t *testing.T) {
	for _, length := range []int{8, 4 * EagerMax} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			ranks := onDemand(t, 8, 0)
			for _, c := range ranks[1:] {
				if got := linked(c); len(got) != 1 || got[0] != 0 {
					t.Errorf("rank %d begins with links to %v, want 0 alone", c.e.me, got)
				}
			}
			ranktest.Each(t, ranks, func(c *comm) error { return ranktest.Around(c, 5, length) })
			for me, c := range ranks {
				want := []int{0, (me + 1) % 8, (me + 7) % 8}
				if me == 0 {
					want = []int{1, 2, 3, 4, 5, 6, 7}
				}
				slices.Sort(want)
				if got := linked(c); !slices.Equal(got, slices.Compact(want)) {
					t.Errorf("rank %d has links to %v, want %v", me, got, want)
				}
			}
			links := func(links, hub int) []string { return []string{fmt.Sprint(links, hub)} }
			if ranks[3].e.cfg.Diagnostics = links; ranks[3].Diagnostics()[0] != "3 0" {
				t.Errorf("the number of links and the hub are %s, want 3 0", ranks[3].Diagnostics()[0])
			}
		})
	}
}

// Ranks that need each other at the same moment have one link, and messages stay in order.
func TestRanksThatDialEachOtherAtOnceHaveOneLink(t *testing.T) {
	ranks := onDemand(t, 5, 0)
	ranktest.Each(t, ranks, func(c *comm) error {
		me := byte(c.Rank())
		for i := range 50 {
			for r := range c.Size() {
				if r != c.Rank() {
					if err := c.Send(patient, []byte{me, byte(i)}, r, 1, backend.Standard); err != nil {
						return err
					}
				}
			}
		}
		for r := range c.Size() {
			for i := range 50 {
				if r == c.Rank() {
					break
				}
				buf := make([]byte, 2)
				if _, err := c.Recv(patient, buf, r, 1); err != nil {
					return err
				}
				if buf[0] != byte(r) || buf[1] != byte(i) {
					return fmt.Errorf("message %d of rank %d is %d of rank %d", i, r, buf[1], buf[0])
				}
			}
		}
		return nil
	})
	for me, c := range ranks {
		all := c.e.demand.dialer.(*testDialer).used() + 1 // one with rank 0 from the start
		if me == 0 {
			all += 3
		}
		if got := linked(c); len(got) != 4 || all != 4 {
			t.Errorf("rank %d has links to %v, and has had %d", me, got, all)
		}
	}
	works(t, ranks)
}

// All ranks learn of the loss of a rank with which they have no link, of the hub, and of the next hub.
func TestLossIsReportedThroughHub(t *testing.T) {
	ranks := onDemand(t, 6, 0)
	q, _ := irecv(ranks[4], 8, 2, 9)
	kill(ranks[2])
	isLost(t, "a receive from the lost rank", await(t, ranks[4], q), "rank 2 ")
	live := []*comm{ranks[0], ranks[1], ranks[3], ranks[4], ranks[5]}
	for _, c := range live {
		lostIs(t, c, 2)
	}
	for hub, want := range [][]int{{0, 2}, {0, 1, 2}} {
		kill(ranks[hub])
		live = live[1:]
		for _, c := range live {
			lostIs(t, c, want...)
		}
	}
}

// A rank refuses a link for good. A rank that needs one gets the reason, even without heartbeats and
// deadlines.
func TestRankThatRefusesLinksIsLost(t *testing.T) {
	ranks := onDemand(t, 3, -1)
	ranks[1].e.demand.dialer.(*testDialer).refuses.Store(true)
	q := isend(ranks[2], 1<<20, 1, 9)
	isLost(t, "a send", await(t, ranks[2], q), "rank 1 ", "cannot be reached", errRefused.Error())
}

// A rank that leaves in good order is not lost, even for ranks without a link to it, whether the hub leaves
// before it or after it.
func TestRankThatLeavesIsNotLost(t *testing.T) {
	for _, order := range [][]int{{3, 0}, {0, 3}, {0, 1, 2}, {1, 0, 4}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			ranks := onDemand(t, 6, 0)
			last := ranks[5]
			var waits []*backend.Request
			for _, r := range order {
				q, _ := irecv(last, 8, r, 9)
				waits = append(waits, q)
			}
			rest := slices.Clone(ranks)
			for i, r := range order {
				ranks[r].Close()
				rest[r] = nil
				isLost(t, fmt.Sprintf("a receive from rank %d", r), await(t, last, waits[i]), fmt.Sprintf("rank %d has closed its communicator and left the job", r))
			}
			rest = slices.DeleteFunc(rest, func(c *comm) bool { return c == nil })
			ranktest.Each(t, rest, func(c *comm) error {
				for _, to := range rest {
					if to == c {
						continue
					}
					if err := c.Send(patient, nil, to.rank, 3, backend.Standard); err != nil {
						return err
					}
					if _, err := c.Recv(patient, nil, to.rank, 3); err != nil {
						return err
					}
				}
				if lost := c.Failed(); lost != nil {
					return fmt.Errorf("ranks %v are lost", lost)
				}
				return nil
			})
		})
	}
}

// Only the hub sends notices of other ranks, and only between ranks of the job.
func TestRankThatForgesNoticeIsLost(t *testing.T) {
	for tag, text := range map[int32]string{
		3*frame.MaxRanks + 1: "of rank 3, whose hub it is not",
		2*frame.MaxRanks + 4: "from rank 2 to rank 4",
		0*frame.MaxRanks + 1: "from rank 0 to rank 1",
	} {
		ranks := onDemand(t, 4, 0)
		q, _ := irecv(ranks[0], 8, 2, 9)
		locked(ranks[2], func(e *Engine) bool {
			return e.peers[0].emit(frame.Header{Kind: frame.Closed, Context: 1, Tag: tag}, nil, nil)
		})
		isLost(t, "a receive from it", await(t, ranks[0], q), "invalid frame", text)
	}
}

// A rank that is lost for another one, and makes a link to it, gets a notice, however their last link ended.
func TestLossIsReportedOnNewLink(t *testing.T) {
	world := onDemand(t, 3, 0)
	hub := world[0].e
	hub.mu.Lock() // it forwards no notice
	world[1].Declare(2, errors.New("for the test"))
	e := world[1].e
	e.mu.Lock()
	e.peers[2].writeErr = errCut
	e.mu.Unlock()
	err := world[2].Send(patient, nil, 1, 1, backend.Synchronous)
	hub.mu.Unlock()
	isLost(t, "a send of the lost rank", err, "rank 2 was declared lost by rank 1")
}

// silence makes ranks silent for the others, as on a machine without power: nothing comes over the links
// with them, and requests get no answer.
func silence(t *testing.T, ranks []*comm, victims ...int) {
	for _, v := range victims {
		ranks[v].e.demand.dialer.(*testDialer).mute.Store(true)
		ranks[v].e.mu.Lock()
	}
	t.Cleanup(func() {
		for _, v := range victims {
			ranks[v].e.mu.Unlock()
		}
	})
}

// Hubs fall silent, one after the other, many of them at once, and while ranks that are alive wait for each
// other. All of these find the silent ranks lost, and no other rank.
func TestSilentHubsAreLost(t *testing.T) {
	for _, c := range []struct {
		what   string
		ranks  int
		talk   [][2]int // have a link before
		silent [][]int  // together, after those before are lost
		then   [][2]int // who sends to whom when the first are silent
	}{
		{"two hubs at once", 6, nil, [][]int{{0, 1}}, [][2]int{{3, 5}, {5, 4}}},
		{"two hubs at once, and the third knows sooner", 6, [][2]int{{2, 1}}, [][]int{{0, 1}}, [][2]int{{3, 5}}},
		{"a hub and the last rank", 5, nil, [][]int{{0, 4}}, [][2]int{{2, 3}}},
		{"one hub after the other", 5, [][2]int{{3, 4}}, [][]int{{0}, {1}}, [][2]int{{2, 4}}},
		{"a machine with many ranks", 12, [][2]int{{10, 3}}, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, [][2]int{{8, 11}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			ranks := onDemand(t, c.ranks, time.Second)
			for _, p := range c.talk {
				pass(t, ranks[p[0]], ranks[p[1]])
			}
			var lost []int
			for _, victims := range c.silent {
				silence(t, ranks, victims...)
				if lost == nil {
					for _, p := range c.then {
						isend(ranks[p[0]], 0, p[1], 2)
					}
				}
				lost = append(lost, victims...)
				for r, x := range ranks {
					if !slices.Contains(lost, r) {
						lostIs(t, x, lost...)
					}
				}
			}
			works(t, without(t, ranks, 1, lost...))
			for r, x := range ranks {
				if !slices.Contains(lost, r) {
					lostIs(t, x, lost...)
				}
			}
		})
	}
}

// A rank that learns that it was declared lost tells the ranks with which it has a link. They may have been stopped with
// it, and have no other link.
func TestRankThatIsLostTellsOthers(t *testing.T) {
	ranks := onDemand(t, 3, -1)
	pass(t, ranks[1], ranks[2])
	q, _ := irecv(ranks[2], 8, 1, 9)
	locked(ranks[1], func(e *Engine) bool {
		e.onLoss(0, 1, backend.Faultf(backend.ErrPeerLost, "it has not moved"))
		return true
	})
	isLost(t, "a receive from it", await(t, ranks[2], q), "rank 1 was declared lost by rank 0: it has not moved")
}

// The hub reports that a rank has left, and the goodbye of that rank does not come: its machine is gone. Once the rank
// is silent for too long, it has left.
func TestRankThatIsReportedAndSilentHasLeft(t *testing.T) {
	s := inSteps(t, 3)
	c, hub := s.ranks[2], s.ranks[0]
	a, b := testPair(newTestSleeper(), newTestSleeper())
	c.e.Came(1, a)
	var head [frame.HeaderSize]byte
	b.enc.Encode(&head, &frame.Header{Kind: frame.Heartbeat})
	b.put(head[:])
	c.Poll()
	q, _ := irecv(c, 8, 1, 9)
	hub.e.membership.Said(1, true)
	hub.Poll()
	for range 2 * c.e.heartbeat.ticks {
		hub.e.beat()
		s.now = s.now.Add(c.e.heartbeat.every)
		c.Poll()
		c.e.beat()
	}
	if lost := c.Failed(); lost != nil || !q.Ready() {
		t.Fatalf("ranks %v are lost (%v); the receive has ended: %v", lost, c.e.losses[1], q.Ready())
	}
	isLost(t, "a receive from it", q.Err, "rank 1 has closed its communicator and left the job")
}

// A rank that does not answer is not lost if silence has no limit.
func TestUnansweredRequestHasNoLimitWithoutHeartbeats(t *testing.T) {
	ranks := onDemand(t, 3, -1)
	silence(t, ranks, 2)
	e := ranks[1].e
	q, _ := irecv(ranks[1], 8, 2, 9)
	e.mu.Lock()
	e.membership.Need(2)
	e.mu.Unlock()
	for range 2 * e.heartbeat.ticks {
		e.beat()
	}
	if lost := ranks[1].Failed(); lost != nil {
		t.Errorf("ranks %v are lost: %v", lost, q.Err)
	}
}
