package node

import (
	"crypto/rand"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Only the processes that are known as the ranks may join.
func TestOtherProcessCannotJoin(t *testing.T) {
	cfg := Config{Name: t.Name() + rand.Text(), Ranks: []int{4, 7}, PIDs: []int{os.Getpid(), os.Getpid() + 1}}
	from, to := sockets(t)
	defer from.Close()
	defer to.Close()
	say := func() { send(from, yes, fmt.Sprintf(hello, 1, 2, os.Getpid())) }
	say()
	if _, _, ours, err := readHello(t.Context(), to, &cfg); err == nil || ours {
		t.Error("this process is taken for another")
	}
	cfg.PIDs[1] = os.Getpid()
	say()
	if rank, _, _, err := readHello(t.Context(), to, &cfg); rank != 1 || err != nil {
		t.Errorf("this process is rank %d, %v; want 1", rank, err)
	}
}

// A rank that sleeps is woken once by every rank with news, and one that is awake by none.
func TestNewsWakesSleepingRankOnce(t *testing.T) {
	seg, err := shmem.Create("test", 2*page)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	rings := 0
	n := &Node{areas: []*rankArea{area(seg, layout{}, 0)}, told: make([]word.Uint32, 1), cfg: &Config{Bell: func(int) { rings++ }}}
	other := *n
	other.told = make([]word.Uint32, 1)
	for range 2 {
		n.Wake(0)
		n.Begin()
		for range 2 {
			n.Wake(0)
			other.Wake(0)
		}
		n.End()
	}
	if n.Wake(0); rings != 4 {
		t.Errorf("%d rings, want two for each of two sleeps", rings)
	}
	n.cfg.Bell = nil
	n.Begin()
	n.Wake(0)
	n.Sleep(0) // returns
	n.End()
}

// Connections that failed do not use up the rings of a node: whether the other rank had taken them or not, they are used
// again, and empty.
func TestRingsOfFailedConnectionsAreUsedAgain(t *testing.T) {
	cfg := Config{Ranks: upTo(2), OnDemand: true}
	l := newLayout(&cfg)
	seg, err := create(&cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	area(seg, l, 0).fill()
	area(seg, l, 1).fill()
	n := newNode(&cfg, seg, l)
	for i := range 10 * l.pairs {
		o, err := n.NewPair()
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		rings := shmem.Slice[byte](seg, l.pair(o.Pair), l.pairSize())
		if rings[0] != 0 || rings[len(rings)-1] != 0 {
			t.Fatalf("connection %d: the rings are not empty", i)
		}
		rings[0], rings[len(rings)-1] = 1, 1
		if i%2 == 0 {
			if err := n.Take(o); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			n.GiveBack(o)
		}
		n.GiveBack(o)
		if n.Take(o) == nil {
			t.Fatalf("connection %d: rings that were given back were taken", i)
		}
	}
}

// Ranks that exchange messages with two neighbors have memory for these rings alone, whatever else they say to all.
func TestMemoryIsForRanksThatTalk(t *testing.T) {
	const ranks = 40
	cfg := Config{Ranks: upTo(ranks)}
	l := newLayout(&cfg)
	seg, err := create(&cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	for r := range ranks {
		area(seg, l, r).fill()
	}
	var links [ranks][ranks]*memlink.Link
	for r := range ranks {
		cfg.Rank = r
		for n, to := newNode(&cfg, seg, l), 0; to < ranks; to++ {
			if to != r {
				links[r][to] = n.Link(to)
			}
		}
	}
	var got frames
	all := func(do func(r, to int, l *memlink.Link)) {
		for r := range ranks {
			for to, l := range links[r] {
				if l != nil {
					do(r, to, l)
				}
			}
		}
	}
	read := func(_, _ int, l *memlink.Link) {
		for moved, in := true, (frame.Arrival{Receiver: &got}); moved && err == nil; {
			moved, err = l.Read(&in)
		}
	}
	for _, kind := range []frame.Kind{frame.Heartbeat, frame.Eager, frame.Goodbye} {
		all(func(r, to int, l *memlink.Link) {
			if kind == frame.Eager && to != (r+1)%ranks {
				return
			}
			if _, werr := l.Write(&frame.Header{Kind: kind}, nil, 0); werr != nil {
				t.Fatal(werr)
			}
			if kind == frame.Goodbye {
				l.Finish(true)
			}
		})
		for range 65 { // a goodbye is looked for now and then
			all(read)
		}
	}
	if err != nil || got[frame.Heartbeat] < ranks*(ranks-1) || got[frame.Eager] != ranks || got[frame.Goodbye] < ranks*(ranks-1) {
		t.Errorf("%v have arrived, %v", got, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(seg.FD(), &st); err != nil {
		t.Fatal(err)
	}
	if most := l.rings + ranks*(l.pairSize()+2*page); st.Blocks*512 > int64(most) {
		t.Errorf("%d KiB are allocated for %d ranks, want at most %d", st.Blocks/2, ranks, most>>10)
	}
}

// frames counts the frames that arrive, by kind.
type frames [64]int

func (f *frames) Begin(*frame.Arrival) error { return nil }
func (f *frames) End(a *frame.Arrival) error { f[a.Head.Kind]++; return nil }
