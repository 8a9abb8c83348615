package shm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// engine is this process's end of the job: one rank and all its communicators.
//
// One lock guards all message state. It is held only briefly (for a copy of at most chunkMax
// bytes), never while waiting, and never while a callback runs: completions that have a Notify are
// collected in notify, and unlock calls them.
type engine struct {
	seg  *shmem.Segment
	lay  layout
	me   int
	ctl  *control
	area []*rankArea
	pids []int  // process ids, as they were when the job began
	name string // of the job

	onWait func() // called when a wait begins, unless nil; set at the start

	mu        sync.Mutex
	out       []outRing // by world rank; own place unused
	in        []inRing
	posted    match.Queue       // *op
	arrived   match.Queue       // *msg
	comms     map[uint32]*comm  // open ones
	closing   map[uint32]*comm  // closed here, not yet by all members: messages are dropped
	early     map[uint32]*early // notices for communicators that are not made here yet
	probes    []*probing
	queued    []*op      // sends that wait for room, oldest first
	rts       [descs]*op // by desc
	gens      [descs]uint64
	freeDesc  []int
	rtsOpen   int // entries of rts in use
	takes     []*op
	notify    []*backend.Request
	done      []*backend.Request // spare for notify
	freeOp    []*op
	freeMsg   []*msg
	bufs      [][]byte // spare buffers of eagerMax bytes
	nextRing  int      // ring to look at first
	slotsUsed []bool   // own arrival slots in use
	seenNews  uint32
	stale     bool   // there may be news that ctl.news does not count
	dead      []bool // processes that have ended
	held      []heldDesc
	isClosed  bool

	mine  []*desc   // own table
	peers [][]*desc // the others'

	fault    atomic.Pointer[backend.Fault]   // the job is over
	lost     []atomic.Pointer[backend.Fault] // by world rank: why it is lost
	watch    *shmem.Watch
	stopBeat func()
	self     *rankArea
	spare    bool // every rank has a core to itself
	cma      bool
	sleeping *atomic.Uint32 // own words in rankArea
	bell     *atomic.Uint32

	waitMu  sync.Mutex // guards sleeper, for cond
	cond    sync.Cond
	sleeper bool
	parked  atomic.Int32
}

// op is a send or receive in progress.
type op struct {
	node  match.Node // a posted receive; its Env is the pattern
	env   match.Env  // what a receive in progress receives
	req   *backend.Request
	own   backend.Request // for blocking calls
	comm  *comm
	buf   []byte
	state uint8
	peer  int // world rank
	tag   int32
	mode  backend.Mode
	kind  uint64         // of a notice instead of a message: kindBreak and its like; env.Ctx is what it is about
	note  *backend.Fault // of kindBreak

	desc   *desc // a long message
	idx    int
	gen    uint64
	addr   uint64 // in the sender
	n      int    // bytes to copy
	size   int    // bytes the sender has
	chunks uint32
	at     int   // bytes moved by chunks
	end    error // why a receive in progress is to end
}

const (
	opIdle uint8 = iota
	opPosted
	opQueued
	opRTS
	opTaking
	opStopped // abandoned by its owner while the peer may be copying
)

// msg is an unexpected message.
type msg struct {
	node match.Node
	buf  []byte // pooled storage of an eager one
	size int
	from int
	desc *desc // of an RTS
	idx  int
	gen  uint64
	addr uint64
}

func newEngine(seg *shmem.Segment, cfg Config) (backend.Comm, error) {
	l := newLayout(cfg.Size)
	e := &engine{
		seg: seg, lay: l, me: cfg.Rank, name: cfg.Job,
		ctl:       shmem.At[control](seg, 0),
		area:      make([]*rankArea, l.n),
		pids:      make([]int, l.n),
		out:       make([]outRing, l.n),
		in:        make([]inRing, l.n),
		peers:     make([][]*desc, l.n),
		comms:     map[uint32]*comm{},
		closing:   map[uint32]*comm{},
		early:     map[uint32]*early{},
		slotsUsed: make([]bool, l.slots),
		dead:      make([]bool, l.n),
		lost:      make([]atomic.Pointer[backend.Fault], l.n),
	}
	e.cond.L = &e.waitMu
	pids := map[int]int{}
	for r := range l.n {
		e.area[r] = shmem.At[rankArea](seg, l.ranks+r*rankAreaSize)
		e.pids[r] = int(e.area[r].pid.Load())
		if r != e.me {
			pids[r] = e.pids[r]
		}
		out, in := &e.out[r], &e.in[r]
		out.r, out.data = newRing(seg, l, e.me, r)
		in.r, in.data = newRing(seg, l, r, e.me)
		e.peers[r] = make([]*desc, descs)
		for i := range descs {
			e.peers[r][i] = shmem.At[desc](seg, l.desc+(r*descs+i)*descSize)
		}
	}
	e.mine = e.peers[e.me]
	for i := range descs {
		e.freeDesc = append(e.freeDesc, descs-1-i)
	}
	e.self = e.area[e.me]
	e.sleeping, e.bell = &e.self.sleeping, &e.self.bell
	e.cma = e.ctl.noCMA.Load() == 0
	e.spare = e.coresToSpare()
	if l.n > 1 {
		w, err := shmem.NewWatch(pids, e.ended)
		if err != nil {
			seg.Close()
			return nil, initFault("rank %d: %v", e.me, err)
		}
		e.watch = w
		e.stopBeat = e.heartbeat(cfg)
	}
	seg.CloseFD()
	// The mapping lives as long as anything can use it: a goroutine that the
	// program left in an operation must not fault.
	runtime.AddCleanup(e, func(s *shmem.Segment) { s.Close() }, seg)
	members := make([]int, l.n)
	for i := range members {
		members[i] = i
	}
	return e.enter(&comm{Members: match.NewMembers(members), isWorld: true})
}

// coresToSpare reports whether the ranks together may use at least as many
// cores as there are ranks.
func (e *engine) coresToSpare() bool {
	var all [16]uint64
	for _, a := range e.area {
		for i := range all {
			all[i] |= a.cpus[i]
		}
	}
	n := 0
	for _, w := range all {
		for ; w != 0; w &= w - 1 {
			n++
		}
	}
	return n >= e.lay.n
}

// progress moves what can be moved without waiting, and reports whether anything moved. The lock is
// held.
func (e *engine) progress() bool {
	moved := false
	if e.stale || e.ctl.news.Load() != e.seenNews {
		e.takeNews()
		moved = true
	}
	for range e.in {
		if e.nextRing++; e.nextRing >= len(e.in) {
			e.nextRing = 0
		}
		if e.nextRing != e.me && e.drain(e.nextRing, false) {
			moved = true
		}
	}
	if len(e.takes) > 0 && e.moveTakes() {
		moved = true
	}
	if e.rtsOpen > 0 && e.moveRTS() {
		moved = true
	}
	if len(e.queued) > 0 && e.moveQueued() {
		moved = true
	}
	return moved || e.stale
}

// drain takes messages out of one ring: a limited number, so that the others are served too. A
// break that another rank made because of a loss stays in the ring until the loss is known here as
// well, because the loss is the better reason. That does not apply to the last messages of a rank,
// after which no one reads the ring any more.
func (e *engine) drain(src int, last bool) bool {
	in := &e.in[src]
	for i := range cells / 4 {
		h, payload, ok := in.peek()
		if !ok {
			return i > 0
		}
		if h.kind == kindBreak && !last && e.ctl.news.Load() != e.seenNews {
			return true // progress starts with the news
		}
		if payload == nil || !e.deliver(src, in, h, payload) {
			e.fail(src, backend.ErrInternal, fmt.Sprintf("rank %d found the ring from rank %d corrupt (kind %d, %d bytes)",
				e.me, src, h.kind, h.size))
			return true
		}
		if in.take(footprint(h.kind, len(payload))) {
			e.ring(src)
		}
	}
	return true
}

// deliver matches one message with its receive, or keeps it. It reports whether the message is
// valid.
func (e *engine) deliver(src int, in *inRing, h header, payload []byte) bool {
	switch h.kind {
	case kindEager:
		env := match.Env{Ctx: h.ctx, Source: int32(src), Tag: h.tag}
		if n := e.posted.TakePosted(env); n != nil {
			o := n.Owner.(*op)
			copied := copy(o.buf, payload)
			e.received(o, env, h.size, copied)
			return true
		}
		if e.closing[h.ctx] != nil {
			return true
		}
		m := e.getMsg()
		m.size, m.from = h.size, src
		if h.size > 0 {
			m.buf = append(e.getBuf()[:0], payload...)
		}
		e.keep(m, env)
	case kindRTS:
		idx, gen, addr := getRTS(payload)
		if idx >= descs || uint64(h.size) > addressSpace {
			return false
		}
		env := match.Env{Ctx: h.ctx, Source: int32(src), Tag: h.tag}
		d := e.peers[src][idx]
		if n := e.posted.FindPosted(env); n != nil {
			e.accept(n.Owner.(*op), d, gen, addr, h.size, env)
			return true
		}
		if e.closing[h.ctx] != nil {
			e.refuse(src, d, gen)
			return true
		}
		m := e.getMsg()
		m.size, m.from, m.desc, m.idx, m.gen, m.addr = h.size, src, d, int(idx), gen, addr
		e.keep(m, env)
	case kindChunk:
		x := in.extra()
		idx, gen, _ := getRTS(x[:])
		return e.chunk(src, idx, gen, payload)
	case kindBreak:
		e.onBreak(h.ctx, &backend.Fault{Sentinel: sentinel(uint32(h.tag)), Text: string(payload)})
	case kindClose:
		e.onClose(h.ctx, src)
	case kindUnmade:
		e.onUnmade(h.ctx, src)
	default:
		return false
	}
	return true
}

func (e *engine) keep(m *msg, env match.Env) {
	m.node.Env, m.node.Owner = env, m
	e.arrived.Push(&m.node)
	if env.Tag < 0 {
		e.checkMixed(env.Ctx, env.Tag, m.buf)
	}
	e.lookProbes()
}

// received completes a receive whose bytes are in its buffer.
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
	stopped := o.state == opStopped
	o.state, o.buf, o.desc = opIdle, nil, nil
	if stopped { // no one waits for it
		e.putOp(o)
		return
	}
	if r.Notify != nil {
		e.notify = append(e.notify, r)
	}
	if r != &o.own { // blocking calls give their op back themselves
		r.Impl = nil
		e.putOp(o)
	}
	r.Finish(st, err) // r and o belong to their owner from here on
	e.wakeOthers()
}

// wakeOthers wakes the goroutines of this process that sleep, because something has completed.
func (e *engine) wakeOthers() {
	if e.sleeping.Load() != 0 {
		e.bell.Add(1)
		shmem.FutexWake(e.bell, 1)
	}
	if e.parked.Load() > 0 {
		e.waitMu.Lock()
		e.cond.Broadcast()
		e.waitMu.Unlock()
	}
}

// unlock releases the lock and calls the collected Notify functions.
func (e *engine) unlock() {
	if len(e.notify) == 0 {
		e.mu.Unlock()
		return
	}
	list := e.notify
	e.notify, e.done = e.done[:0], nil
	e.mu.Unlock()
	for i, r := range list {
		list[i] = nil
		r.Notify(r)
	}
	e.mu.Lock()
	if e.done == nil {
		e.done = list[:0]
	}
	e.wakeOthers() // a goroutine may have gone to sleep again before Notify made ready what it waits for
	e.mu.Unlock()
}

// ring wakes another rank if it sleeps. The caller has published the news with an atomic store
// before.
func (e *engine) ring(rank int) {
	a := e.area[rank]
	if a.sleeping.Load() != 0 {
		a.bell.Add(1)
		shmem.FutexWake(&a.bell, 1)
	}
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
	if m.buf != nil && len(e.bufs) < 256 {
		e.bufs = append(e.bufs, m.buf)
	}
	*m = msg{}
	if len(e.freeMsg) < 1024 {
		e.freeMsg = append(e.freeMsg, m)
	}
}

func (e *engine) getBuf() []byte {
	if n := len(e.bufs); n > 0 {
		b := e.bufs[n-1]
		e.bufs = e.bufs[:n-1]
		return b
	}
	return make([]byte, 0, e.lay.eagerMax())
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
	o.req, o.comm, o.buf, o.note, o.end, o.kind, o.state = nil, nil, nil, nil, nil, 0, opIdle
	e.freeOp = append(e.freeOp, o)
}
