package node

import (
	"context"
	"math/bits"
	"os"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/board"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Config says which ranks of which job meet.
type Config struct {
	Job   string // for errors
	Name  string // of the meeting: the same on all ranks, and of no other meeting of this user
	Ranks []int  // of the job, on this node; below, ranks are counted on the node
	Rank  int    // this one
	PIDs  []int  // of the ranks' processes, if they are known: no others may join

	// OnDemand makes the rings of two ranks when they first need them (NewLink), otherwise all are made at
	// the start. It is the same on all ranks, as is Data, the length of each data ring (0: chosen).
	OnDemand bool
	Data     int

	// Check is board.Config.Check.
	Check bool

	// Bell wakes a rank that has announced its sleep and may be awake by now. nil: it sleeps in Sleep.
	Bell func(rank int)
}

// Node is a rank's view of the memory that the ranks of its node share. Several goroutines may use it.
type Node struct {
	PIDs   []int
	Copies bool // the processes may read each other's memory
	Spare  bool // every rank has a processor to itself
	Data   int  // bytes of each data ring

	cfg   *Config
	rung  uint32        // what Arm has returned
	told  []word.Uint32 // of each rank: the number of the sleep that Config.Bell has been called for
	seg   *shmem.Segment
	l     layout
	areas []*rankArea
	procs []*shmem.Process
}

// Join returns when all ranks have joined, or with an error on all of them.
func Join(ctx context.Context, cfg Config) (*Node, error) {
	l := newLayout(&cfg)
	seg, err := join(ctx, &cfg, l)
	if err != nil {
		return nil, err
	}
	return newNode(&cfg, seg, l), nil
}

func newNode(cfg *Config, seg *shmem.Segment, l layout) *Node {
	n := &Node{PIDs: make([]int, l.n), Copies: shmem.At[control](seg, 0).noCMA.Load() == 0, Data: l.data,
		cfg: cfg, seg: seg, l: l, areas: make([]*rankArea, l.n), told: make([]word.Uint32, l.n), procs: make([]*shmem.Process, l.n)}
	cpus := make([][16]uint64, l.n)
	for r := range l.n {
		n.areas[r] = area(seg, l, r)
		n.procs[r] = n.areas[r].who.Process()
		n.PIDs[r], cpus[r] = n.procs[r].PID, n.areas[r].cpus
	}
	n.Spare = Spare(cpus)
	return n
}

// Spare reports whether ranks, each of which may use some processors, together may use at least as many as
// there are ranks.
func Spare(ranks [][16]uint64) bool {
	var all [16]uint64
	for _, cpus := range ranks {
		for i := range all {
			all[i] |= cpus[i]
		}
	}
	n := 0
	for _, w := range all {
		n += bits.OnesCount64(w)
	}
	return n >= len(ranks)
}

// Leave closes the descriptor of the memory: nothing more is allocated.
func (n *Node) Leave() { n.seg.CloseFD() }

// Close unmaps the memory, which nothing may use any more.
func (n *Node) Close() { n.seg.Close() }

// Board returns this rank's view of the arrival slots.
func (n *Node) Board() *board.Board {
	return board.New(board.Config{
		Segment: n.seg, Offset: n.l.board, More: n.l.more, Rank: n.cfg.Rank, Ranks: n.procs,
		Copies: n.Copies, Spare: n.Spare, Check: n.cfg.Check, Wake: n.Wake,
	})
}

// Link returns this rank's end of the link to another one, if all links are made at the start. The rings are allocated
// when one of the two ranks first needs them.
func (n *Node) Link(peer int) *memlink.Link {
	pair := pairOf(n.cfg.Rank, peer)
	return n.link(peer, pair, func() error { return n.allocate(pair) })
}

func (n *Node) allocate(pair int) error {
	if err := n.seg.Allocate(n.l.pair(pair), n.l.pairSize()); err != nil {
		return &backend.Fault{Sentinel: backend.ErrAlloc, Text: "messages between two ranks: " + err.Error()}
	}
	return nil
}

func (n *Node) link(peer, pair int, make func() error) *memlink.Link {
	mailboxes := shmem.At[[2]memlink.Mailbox](n.seg, n.l.mailbox(pair))
	out, says, hears := n.l.pair(pair), &mailboxes[0], &mailboxes[1]
	in := out + memlink.Size(n.l.data)
	if n.cfg.Rank > peer {
		out, in, says, hears = in, out, hears, says
	}
	return memlink.New(memlink.Config{Segment: n.seg, Out: out, In: in, Data: n.l.data, Says: says, Hears: hears, Make: make, Peer: n.procs[peer], Copies: n.Copies,
		Spare: n.Spare, Asleep: &n.areas[peer].bell, Bell: func() { n.Wake(peer) }, Kill: func() { n.kill(peer) }})
}

// Begin announces that this rank is about to sleep, as wait.Bell says.
func (n *Node) Begin() {
	a := n.areas[n.cfg.Rank]
	a.sleeps.Add(1)
	n.rung = a.bell.Arm()
}

// Sleep waits until another rank has rung since Begin, for at most timeout if that is above 0.
func (n *Node) Sleep(timeout time.Duration) { n.areas[n.cfg.Rank].bell.Sleep(n.rung, timeout) }

// End takes the announcement back.
func (n *Node) End() { n.areas[n.cfg.Rank].bell.Disarm() }

// Wake wakes a rank if it has announced its sleep. The caller has published the news before. Every process rings: one
// that is stopped before it does must not keep the others from waking the rank. Config.Bell is called once for each
// sleep, which fills no queue: a rank that has been rung while it has announced a sleep looks for news after that sleep.
func (n *Node) Wake(rank int) {
	a := n.areas[rank]
	if !a.bell.Armed() {
		return
	}
	if n.cfg.Bell == nil {
		a.bell.Ring()
		return
	}
	if sleep := a.sleeps.Load(); n.told[rank].Load() != sleep {
		n.cfg.Bell(rank)
		n.told[rank].Store(sleep) // not before: a goroutine that is preempted in between keeps no other from ringing
	}
}

// Ring ends this rank's Sleep.
func (n *Node) Ring() { n.areas[n.cfg.Rank].bell.Ring() }

func area(seg *shmem.Segment, l layout, rank int) *rankArea {
	return shmem.At[rankArea](seg, l.ranks+rank*rankAreaSize)
}

// fill publishes this rank's area, before another rank reads it.
func (a *rankArea) fill() {
	a.who = shmem.Self()
	if cpus, err := shmem.CPUs(); err == nil {
		a.cpus = cpus
	}
}

// kill ends the process of a rank.
func (n *Node) kill(rank int) {
	p, err := os.FindProcess(n.PIDs[rank]) // for good, unlike its number
	if err != nil {
		return
	}
	defer p.Release()
	if n.procs[rank].Check() == nil {
		p.Kill()
	}
}

// Runs is shmem.Runs. A process that has become another program has ended as a rank.
func (n *Node) Runs(pid int) bool {
	r := slices.Index(n.PIDs, pid)
	return shmem.Runs(pid) && (r < 0 || !shmem.Gone(n.procs[r].Check()))
}
