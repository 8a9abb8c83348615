package engine

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/board"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/membership"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Config describes one rank's engine.
type Config struct {
	Rank  int
	Peers []Peer // by world rank; this rank's own included

	// Heartbeat is how long another rank may be silent before it is lost: 0 means HeartbeatDefault, a
	// negative value no limit. It is the same on all ranks.
	Heartbeat time.Duration

	// Runs reports whether a process of this node lives and is not stopped. nil: nobody can say.
	Runs func(pid int) bool

	Sleeper Sleeper
	Spare   bool   // every rank of this node has a processor to itself
	Yield   func() // gives the processor to another rank of the node; nil: a waiter without one sleeps at once

	Dialer Dialer // makes links when they are needed; nil: all links are made at the start

	Board *board.Board // the arrival slots of this node; nil: collectives are schedules

	Caps   backend.Caps
	Now    func() time.Time // nil: time.Now
	Manual bool             // the caller makes progress (poll) and ticks (beat), for a simulation

	// Diagnostics returns lines for the communicators, with how many links there are and which rank is
	// the hub if links are made on demand.
	Diagnostics func(links, hub int) []string
	// Left is called when this rank has left the job.
	Left func()
}

// Peer describes a rank.
type Peer struct {
	Host string
	PID  int
	Node int // the lowest world rank of its node

	Local int // its place in Board, if it is of this node; below 0: it has none
}

// String implements fmt.Stringer.
func (p Peer) String() string {
	if p.Host == "" {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d on %s", p.PID, p.Host)
}

// Engine is this process's end of the job: one rank, all its communicators, and a link to other ranks.
//
// One lock guards everything that moves messages, and releasing it makes known what has completed under it. Without it
// goroutines use only atomic fields, those of background, and those that New sets and nobody changes.
type Engine struct {
	cfg   Config
	me    int
	peers []*peer // by world rank; nil for this one
	open  []*peer // those that have, or had, a link
	crew  wait.Crew

	mu lock
	messages
	communicators
	bursts
	polls
	departures
	background
	storage storage

	fault atomic.Pointer[backend.Fault] // all communicators have ended
	news  atomic.Uint32                 // for probes: messages have arrived, or ranks or communicators have ended
}

// messages are those that have begun and not ended.
type messages struct {
	posted  match.Queue // *op
	arrived match.Queue // *msg
	slots   []slot      // operations that a peer has a token for
	spares  []uint32    // free slots
	probes  int         // that wait
	stale   int         // discardRevoked looks when arrived is that long
	held    []*msg      // RTS that Mprobe has taken
	active  int         // operations
	moving  []*op       // receives in opMoving
}

// communicators are those of this rank.
type communicators struct {
	comms   map[uint32]*comm    // until all members have closed them
	early   map[uint32][]func() // notices for communicators that are not made here yet: see early.go
	settled uint32              // this rank makes no communicator with a lower id any more
	queued  []*board.Collective // with operations that have not arrived
}

// bursts are what keep holds of messages, as burst.go says.
type bursts struct {
	corks    []*peer       // whose links may keep frames back
	uncorks  int           // how often corks were written
	keeps    *word.Parker  // of flusher: frames are kept back, or flushed is set
	flushed  word.Bool     // flusher ends
	burstGap time.Duration // the constant, except in tests
}

// polls are what looking at the links needs.
type polls struct {
	nextPeer int    // to look at first
	turns    uint32 // how often poll has looked
	still    int    // how often progress has found nothing since something moved last
	passes   int    // calls of Irecv that look at no link: see passMost
	asked    []Link // for Sleeper.Poll
	rooms    []bool
	askedOf  []*peer
	askMove  func(i int) // moves askedOf[i], and notes in anyMoved whether it moved; made once
	anyMoved bool
	moves    int // how often the leader has found that something moved when it was about to sleep
}

// departures are losses and goodbyes.
type departures struct {
	membership  *membership.Machine // who is there
	losses      []*backend.Fault    // by world rank: why it is lost, nil if it is not
	due         []loss              // about to be marked lost
	linksClosed int                 // of the first of the ranks that are lost
	goodbyes    []*goodbye          // links that end
	excluded    bool                // the others have declared this rank lost
	silent      []*peer             // of this node, and silent: the next beat, whose they are, asks the kernel
	demand      *demand             // nil if all links are made at the start
}

// storage is memory that is used again.
type storage struct {
	ops  pool[op]
	msgs pool[msg]
	outs pool[out]
	bufs [len(bufSizes)][][]byte
}

// background is what the ticker uses.
type background struct {
	heartbeat heartbeat
	ticked    time.Time           // when the last tick was
	beats     sync.Mutex          // held by beat, which runs in the ticker, or in a test
	looked    atomic.Int64        // when a waiter looked last, since epoch
	verified  []*board.Collective // the ticker's alone
	stop      chan struct{}       // ends the ticker
	ticker    sync.WaitGroup
}

// msg is an unexpected message.
type msg struct {
	node  match.Node
	buf   []byte // pooled storage of an eager one
	size  int
	kind  uint8  // what size bytes it announces
	token uint64 // of an RTS or a transfer, the sender's
	addr  uint64 // of a transfer: where the data are in the sender's memory
	send  *op    // a long message of this rank to itself
	gone  bool   // the sender has canceled it after Mprobe had taken it
}

// The kinds of msg.
const (
	msgEager uint8 = iota
	msgRequested
	msgExposed
	msgSelf
)

// New returns the engine of a rank. The backend then gives it its links (Connect) and calls Start.
func New(cfg Config) *Engine {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	e := &Engine{
		cfg: cfg, me: cfg.Rank, peers: make([]*peer, len(cfg.Peers)),
		messages:      messages{stale: staleMin},
		communicators: communicators{comms: map[uint32]*comm{}, early: map[uint32][]func(){}},
		bursts:        bursts{keeps: word.NewParker(), burstGap: burstGap},
		departures:    departures{losses: make([]*backend.Fault, len(cfg.Peers))},
		background:    background{heartbeat: newHeartbeat(cfg.Heartbeat, cfg.sharing()), ticked: cfg.Now(), stop: make(chan struct{})},
	}
	if e.mu.e, e.mu.hook = e, atUnlock; atUnlock != nil {
		e.mu.due = callHook
	}
	e.crew.Links = (*links)(e)
	if cfg.Spare || cfg.Yield != nil {
		e.crew.LookFor = e.look
	}
	e.askMove = func(i int) { e.anyMoved = e.askedOf[i].move() || e.anyMoved }
	states := make([]*membership.Peer, len(e.peers))
	for r := range e.peers {
		if r != e.me {
			e.peers[r] = newPeer(e, r)
			states[r] = &e.peers[r].state
		}
	}
	e.membership = membership.New(e.me, states, cfg.Dialer != nil, e.heartbeat.reach, host{e})
	if cfg.Dialer != nil {
		e.demand = newDemand(e, cfg.Dialer)
	}
	return e
}

// sharing returns how many ranks share the processors of this rank's node, 0 if they need not.
func (cfg *Config) sharing() (n int) {
	for _, p := range cfg.Peers {
		if !cfg.Spare && p.Node == cfg.Peers[cfg.Rank].Node {
			n++
		}
	}
	return n
}

// Connect gives the engine the link to a rank, before Start.
func (e *Engine) Connect(rank int, l Link) {
	e.membership.Connected(rank)
	e.peers[rank].up(l)
	e.peers[rank].confirmed()
}

// Start starts the engine, and returns the communicator of all ranks.
func (e *Engine) Start() (backend.Comm, error) {
	members := make([]int, len(e.cfg.Peers))
	for r := range members {
		members[r] = r
	}
	world, err := e.newComm(&comm{Members: match.NewMembers(members), rank: e.me, isWorld: true})
	if err != nil {
		return nil, err
	}
	if !e.cfg.Manual {
		turn := make(chan struct{}, 1)
		e.ticker.Go(func() { e.tick(turn) })
		e.ticker.Go(e.flusher)
		e.ticker.Go(func() { // on its own, because it waits for Notify functions
			for range turn {
				e.advance()
			}
		})
	}
	if e.demand != nil {
		e.demand.dialer.Serve(e.demand.ctx, e)
	}
	return world, nil
}

// Poke makes progress, and makes the waiters look again. A backend calls it when a link has news that its
// Sleeper does not see.
func (e *Engine) Poke() {
	e.poll()
	e.crew.Ask()
	e.crew.Rouse()
}

// progress moves what can be moved without waiting and reports whether anything was. The lock is held.
func (e *Engine) progress() bool {
	if len(e.corks) > 0 {
		e.uncork()
	}
	if len(e.queued) > 0 {
		e.queued = slices.DeleteFunc(e.queued, func(s *board.Collective) bool { return !s.Queued() })
	}
	moved := len(e.moving) > 0
	if moved {
		e.moveSelf()
	}
	if len(e.open) >= directMax && !e.membership.Closed() {
		moved = e.progressMany() || moved
	} else {
		for range e.open {
			if e.nextPeer++; e.nextPeer >= len(e.open) {
				e.nextPeer = 0
			}
			moved = e.open[e.nextPeer].move() || moved
		}
	}
	if e.lossesPending() {
		e.handleLosses()
		moved = true
	}
	if e.still++; moved {
		e.still = 0
	}
	return moved
}

// staleMin is the least number of messages in the queue when discardRevoked looks at it.
const staleMin = 256

// directMax is the number of links up to which progress tries to read every one; with more it asks the
// system first which of those that it can ask have something.
const directMax = 5

func (e *Engine) progressMany() bool {
	e.asked, e.rooms, e.askedOf = e.asked[:0], e.rooms[:0], e.askedOf[:0]
	e.anyMoved = false
	for _, p := range e.open {
		switch {
		case p.link == nil || p.link.Hidden() || p.writeErr != nil:
			e.anyMoved = p.move() || e.anyMoved
		default:
			e.asked, e.rooms, e.askedOf = append(e.asked, p.link), append(e.rooms, p.waits()), append(e.askedOf, p)
		}
	}
	if len(e.asked) > 0 {
		e.cfg.Sleeper.Poll(e.asked, e.rooms, e.askMove)
	}
	return e.anyMoved
}

// keep puts an unexpected message into the queue.
func (e *Engine) keep(m *msg, env match.Env) {
	m.node.Env, m.node.Owner = env, m
	e.arrived.Push(&m.node)
	if env.Tag < 0 && m.kind == msgEager {
		e.checkMixed(env.Ctx, env.Tag, m.buf)
	}
	e.wakeProbes()
}

// pool keeps records for later use.
type pool[T any] []*T

func (p *pool[T]) get() *T {
	n := len(*p)
	if n == 0 {
		return new(T)
	}
	x := (*p)[n-1]
	*p = (*p)[:n-1]
	return x
}

func (p *pool[T]) put(x *T) { *p = append(*p, x) }

// discard drops a message that has arrived and that no receive gets.
func (e *Engine) discard(m *msg) {
	e.arrived.Remove(&m.node)
	if m.kind == msgSelf {
		m.send.self = nil
	}
	e.putMsg(m)
}

func (e *Engine) putMsg(m *msg) {
	e.putBuf(m.buf)
	*m = msg{}
	if len(e.storage.msgs) < 1024 {
		e.storage.msgs.put(m)
	}
}

// EagerMax is the largest EagerMax of a link.
const EagerMax = 64 << 10

// bufSizes are the lengths of the buffers for unexpected messages, and bufsKept how many of each are
// kept for later ones.
var (
	bufSizes = [...]int{256, 4 << 10, EagerMax}
	bufsKept = [...]int{256, 64, 32}
)

func (e *Engine) getBuf(size int) []byte {
	if size == 0 {
		return nil
	}
	k := 0
	for bufSizes[k] < size {
		k++
	}
	if n := len(e.storage.bufs[k]); n > 0 {
		b := e.storage.bufs[k][n-1]
		e.storage.bufs[k] = e.storage.bufs[k][:n-1]
		return b[:size]
	}
	return make([]byte, size, bufSizes[k])
}

func (e *Engine) putBuf(b []byte) {
	for k, size := range bufSizes {
		if cap(b) == size && len(e.storage.bufs[k]) < bufsKept[k] {
			e.storage.bufs[k] = append(e.storage.bufs[k], b)
		}
	}
}
