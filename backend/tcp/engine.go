package tcp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// engine is this process's end of the job: one rank, all its communicators, one link to every other
// rank.
//
// One lock guards everything that moves messages. It is held for short times only (system calls
// that do not block, of at most pieceMax bytes), never while waiting, and never while code
// outside the engine runs: completions with a Notify are collected in notify and called by the goroutine
// that releases the lock.
type engine struct {
	me    int
	peers []peer  // by world rank
	links []*link // by world rank; nil for this one
	open  []*link // those that have, or had, a connection

	onWait func() // nil: none; set at the start

	mu       sync.Mutex
	posted   match.Queue // *op
	arrived  match.Queue // *msg
	slots    []slot      // operations that a peer has a token for
	spares   []uint32    // free slots
	comms    map[uint32]*comm
	closing  map[uint32]*comm  // closed here, not yet by all members: messages are dropped
	early    map[uint32]*early // notices for communicators that are not made here yet
	probes   []*probing
	held     []*msg // RTS that Mprobe has taken
	reads    []*op  // receives that read the memory of a peer
	notify   []*backend.Request
	lists    [][]*backend.Request // spare for notify
	corks    []*link              // that may keep frames back
	freeOp   []*op
	freeMsg  []*msg
	freeOut  []*out
	bufs     [len(bufSizes)][][]byte                   // spare buffers
	order    uint64                                    // of the last receive
	turn     int                                       // link to look at first
	join     [corkMax + wire.HeaderSize + joinMax]byte // a short frame as it is written
	news     pollset                                   // of progress, where there are many links
	asked    []*link                                   // in news
	isClosed bool

	losses      []*backend.Fault // by world rank: why it is lost, nil if it is not
	lostInOrder []int            // the ranks that are, first lost first
	due         []loss           // about to be marked lost
	draining    []int            // lost ranks whose links are not closed yet
	goodbyes    []*goodbye       // of lost ranks' connections
	demand      *demand          // nil if all connections are made at the start
	departed    []int            // ranks that have left, for a notice to the others
	excluded    bool             // the others have declared this rank lost
	life        life
	ticked      time.Time // when the last tick was

	fault  atomic.Pointer[backend.Fault] // all communicators have ended
	spare  bool                          // every rank of this node has a core to itself
	looked atomic.Int64                  // when a waiter looked last, since epoch
	passes atomic.Uint32                 // of progress
	stop   chan struct{}                 // ends the ticker
	ticker sync.WaitGroup

	bell     bell
	sleeping atomic.Bool      // the leader sleeps, or is about to: ring the bell
	sleep    pollset          // the leader's
	armed    []stream         // in sleep
	facts    []string         // for Diagnostics
	doors    []*wire.Listener // with counts of refused connections, for Diagnostics

	waitMu sync.Mutex // guards leader and hungUp, for cond
	hungUp bool       // the bell is closed
	cond   sync.Cond
	leader bool
	parked atomic.Int32
}

// peer is what this rank knows of another one, or of itself.
type peer struct {
	host string
	pid  int
	node int // the lowest world rank that it could share memory with
}

// op is a send or receive in progress.
type op struct {
	node     match.Node // a posted receive; its Env stays the pattern
	env      match.Env  // what a receive in progress receives
	req      *backend.Request
	own      backend.Request // for blocking calls
	comm     *comm
	buf      []byte
	state    uint8
	peer     int // world rank
	tag      int32
	token    uint64 // of its slot; 0: it has none
	theirs   uint64 // the peer's token for it
	n        int    // bytes to move
	at       int    // bytes moved
	size     int    // bytes the sender has
	frame    *out   // the frame with its bytes that is in the queue
	self     *msg   // a long message to oneself
	order    uint64 // of a receive: which of all
	fixed    bool   // a receive of a message that Mprobe took
	exposed  bool   // a send whose data the peer may read where they are
	addr     uint64 // of a receive: where its data are in the peer's memory, while they are being read there
	read     bool   // of a receive: its data are read there, or were
	exposure [exposureSize]byte
}

const (
	opIdle      uint8 = iota
	opPosted          // a receive that waits for its message
	opQueued          // an eager send whose last byte is not in the socket
	opRequested       // a send that waits for its CTS
	opStreaming       // a send that was
	opTaking          // a receive whose message is coming
)

// msg is an unexpected message.
type msg struct {
	node  match.Node
	buf   []byte // pooled storage of an eager one
	size  int
	token uint64 // of an RTS, the sender's; 0 for an eager one
	addr  uint64 // of an RTS: where the data are in the sender's memory; 0 if they come in frames
	send  *op    // a long message of this rank to itself
	gone  bool   // the sender has cancelled it after Mprobe had taken it
}

type slot struct {
	op  *op
	gen uint32
}

// enter gives o a token, by which a peer refers to it.
func (e *engine) enter(o *op) {
	if len(e.spares) == 0 {
		e.spares = append(e.spares, uint32(len(e.slots)))
		e.slots = append(e.slots, slot{})
	}
	i := e.spares[len(e.spares)-1]
	e.spares = e.spares[:len(e.spares)-1]
	s := &e.slots[i]
	s.op = o
	if s.gen++; s.gen == 0 {
		s.gen = 1
	}
	o.token = uint64(s.gen)<<32 | uint64(i)
}

// lookup returns the operation of a token from a peer, nil if it has ended.
func (e *engine) lookup(token uint64, peer int) *op {
	i := uint32(token)
	if uint64(i) >= uint64(len(e.slots)) {
		return nil
	}
	s := &e.slots[i]
	if s.op == nil || uint64(s.gen) != token>>32 || s.op.peer != peer {
		return nil
	}
	return s.op
}

// leaveSlot ends o's token.
func (e *engine) leaveSlot(o *op) {
	e.stopReading(o)
	if o.token != 0 {
		i := uint32(o.token)
		e.slots[i].op, o.token = nil, 0
		e.spares = append(e.spares, i)
	}
}

// A conn is an authenticated connection to another rank, and the codecs of its two directions.
type conn struct {
	fd   int
	over stream // nil if the socket carries the frames as they are
	enc  *wire.Encoder
	dec  *wire.Decoder
	sums bool // payloads are sent with their checksums
}

// newEngine starts this rank's part of a job whose connections are made.
// heartbeat is Config.Heartbeat.
func newEngine(me int, peers []peer, conns []conn, spare bool, heartbeat time.Duration) (backend.Comm, error) {
	return startEngine(me, peers, conns, spare, heartbeat, nil)
}

// startEngine is newEngine for a job in which some connections are made and d makes the others.
func startEngine(me int, peers []peer, conns []conn, spare bool, heartbeat time.Duration, d *demand) (backend.Comm, error) {
	e := &engine{
		me: me, peers: peers, spare: spare, life: newLife(heartbeat), ticked: time.Now(), demand: d,
		links:   make([]*link, len(peers)),
		losses:  make([]*backend.Fault, len(peers)),
		comms:   map[uint32]*comm{},
		closing: map[uint32]*comm{},
		early:   map[uint32]*early{},
		stop:    make(chan struct{}),
	}
	e.cond.L = &e.waitMu
	if d != nil {
		d.e = e
	}
	var err error
	if e.bell, err = newBell(); err != nil {
		for i := range conns {
			conns[i].close()
		}
		return nil, initFault("rank %d: %v", me, err)
	}
	members := make([]int, len(peers))
	for r := range peers {
		members[r] = r
		if r == me {
			continue
		}
		e.links[r] = &link{e: e, peer: r, fd: -1}
		if conns[r].enc != nil {
			e.links[r].up(&conns[r])
		}
	}
	world := &comm{Members: match.NewMembers(members), rank: me, isWorld: true}
	e.newComm(world)
	e.ticker.Go(e.tick)
	if d != nil {
		d.serve()
	}
	return world, nil
}

// progress moves what can be moved without waiting and reports whether anything was. The lock is
// held.
func (e *engine) progress() bool {
	e.passes.Add(1)
	if len(e.corks) > 0 {
		e.uncork()
	}
	moved := false
	if len(e.open) >= directMax && !e.isClosed {
		moved = e.progressMany()
	} else {
		moved = e.progressFew()
	}
	if len(e.reads) > 0 {
		e.read()
		moved = true
	}
	if e.lossesPending() {
		e.handleLosses()
		moved = true
	}
	return moved
}

func (e *engine) progressFew() bool {
	moved := false
	for range e.open {
		if e.turn++; e.turn >= len(e.open) {
			e.turn = 0
		}
		if l := e.open[e.turn]; l.fd >= 0 && l.move() {
			moved = true
		}
	}
	return moved
}

// directMax is the number of ranks up to which progress tries to read every link; with more it asks
// the system first which of them have something.
const directMax = 5

func (e *engine) progressMany() bool {
	e.news.reset()
	e.asked = e.asked[:0]
	moved := false
	for _, l := range e.open {
		switch {
		case l.fd < 0:
		case l.hides():
			if l.move() {
				moved = true
			}
		default:
			e.news.add(l.fd, l.waits())
			e.asked = append(e.asked, l)
		}
	}
	if len(e.asked) > 0 {
		e.news.wait(-1)
	}
	for i, l := range e.asked {
		if (e.news.ready(i) || l.broken != nil) && l.fd >= 0 && l.move() {
			moved = true
		}
	}
	return moved
}

// keep puts an unexpected message into the queue.
func (e *engine) keep(m *msg, env match.Env) {
	m.node.Env, m.node.Owner = env, m
	e.arrived.Push(&m.node)
	e.lookProbes()
}

// received completes a receive whose bytes are in place.
func (e *engine) received(o *op, env match.Env, size, copied int) {
	var err error
	if size > copied {
		err = truncated(size, len(o.buf))
	}
	e.finish(o, backend.Status{Source: o.comm.RankOf(int(env.Source)), Tag: int(env.Tag), Bytes: size}, err)
}

func truncated(size, room int) error {
	return &backend.Fault{Sentinel: backend.ErrTruncate, Text: fmt.Sprintf("the message has %d bytes, the buffer %d", size, room)}
}

// finish completes an operation. The lock is held: Notify is called later.
func (e *engine) finish(o *op, st backend.Status, err error) {
	r := o.req
	e.leaveSlot(o)
	o.state, o.buf, o.frame, o.self, o.exposed = opIdle, nil, nil, nil, false
	if r.Notify != nil {
		e.notify = append(e.notify, r)
	}
	if r != &o.own { // blocking calls give their op back themselves
		r.Impl = nil
		e.putOp(o)
	}
	r.Finish(st, err) // from here on r and o are their owner's
	e.wakeOthers()
}

// unlock releases the lock and calls the Notify functions of completed requests. Frames that these kept
// back are written, because the caller may not come back for long.
func (e *engine) unlock() { e.release(true) }

func (e *engine) release(flush bool) {
	if len(e.notify) == 0 {
		e.mu.Unlock()
		return
	}
	list := e.notify
	e.notify = nil
	if n := len(e.lists); n > 0 {
		e.notify = e.lists[n-1]
		e.lists = e.lists[:n-1]
	}
	e.mu.Unlock()
	for i, r := range list {
		list[i] = nil
		r.Notify(r)
	}
	e.mu.Lock()
	if len(e.lists) < 8 { // a Notify may have released the lock too
		e.lists = append(e.lists, list[:0])
	}
	if flush && len(e.corks) > 0 {
		e.uncork()
	}
	e.wakeOthers() // a waiter for what Notify has made ready may sleep again since the completion
	e.mu.Unlock()
}

func (e *engine) getOp() *op {
	if n := len(e.freeOp); n > 0 {
		o := e.freeOp[n-1]
		e.freeOp = e.freeOp[:n-1]
		return o
	}
	return &op{}
}

func (e *engine) putOp(o *op) {
	o.req, o.comm, o.buf, o.state = nil, nil, nil, opIdle
	e.freeOp = append(e.freeOp, o)
}

func (e *engine) getMsg() *msg {
	if n := len(e.freeMsg); n > 0 {
		m := e.freeMsg[n-1]
		e.freeMsg = e.freeMsg[:n-1]
		return m
	}
	return &msg{}
}

func (e *engine) putMsg(m *msg) {
	e.putBuf(m.buf)
	*m = msg{}
	if len(e.freeMsg) < 1024 {
		e.freeMsg = append(e.freeMsg, m)
	}
}

// bufSizes are the lengths of the buffers for unexpected messages, and bufsKept how many of each are
// kept for later ones.
var (
	bufSizes = [...]int{256, 4 << 10, eagerMax}
	bufsKept = [...]int{256, 64, 32}
)

func (e *engine) getBuf(size int) []byte {
	if size == 0 {
		return nil
	}
	k := 0
	for bufSizes[k] < size {
		k++
	}
	if n := len(e.bufs[k]); n > 0 {
		b := e.bufs[k][n-1]
		e.bufs[k] = e.bufs[k][:n-1]
		return b[:size]
	}
	return make([]byte, size, bufSizes[k])
}

func (e *engine) putBuf(b []byte) {
	for k, size := range bufSizes {
		if cap(b) == size && len(e.bufs[k]) < bufsKept[k] {
			e.bufs[k] = append(e.bufs[k], b)
		}
	}
}
