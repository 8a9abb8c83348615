package sched

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// data runs the rounds of a schedule.
type data struct {
	o        *Op
	tag      int
	s        *coll.Schedule
	round    word.Int32 // the round under way; also read for reports
	pending  word.Int32 // as in exchange
	reqs     []backend.Request
	notify   func(*backend.Request)
	resume   func() // goes on with a round in a goroutine of the operation
	temp     []byte
	operands []byte     // of a user's operation
	buffers  word.Mutex // held while local uses the program's buffers; End waits for it

	wrong wrong // the lowest sender of a wrong length
	err   error
}

func (d *data) init(o *Op) {
	d.o = o
	d.notify = func(*backend.Request) {
		if d.pending.Add(-1) == 0 {
			d.advance(borrowed)
		}
	}
	d.resume = func() {
		defer o.r.goOn() // also if the operation ends the goroutine; o may be in use again by then
		d.advance(own)
	}
}

// prepare allocates the requests for running s.
func (d *data) prepare(s *coll.Schedule) {
	d.s = s
	most := 0
	for i := range s.Rounds {
		most = max(most, len(s.Rounds[i].Comm))
	}
	if len(d.reqs) < most {
		d.reqs = make([]backend.Request, most)
		for i := range d.reqs {
			d.reqs[i].Notify = d.notify
		}
	}
}

// grow allocates the scratch memory for running the schedule.
func (d *data) grow() {
	if len(d.temp) < d.s.Scratch {
		d.temp = make([]byte, d.s.Scratch)
	}
}

// begin starts the schedule; when it ends it calls the Op's moved. A new goroutine makes scratch memory for which that
// takes long, so that the caller can end at its deadline.
func (d *data) begin(tag int) {
	d.tag, d.err, d.wrong = tag, nil, wrong{receiver: -1}
	d.round.Store(0)
	if len(d.temp) >= d.s.Scratch || d.s.Scratch <= pieceBytes || d.o.r.oneThread {
		d.grow()
		d.run(borrowed)
		return
	}
	r := d.o.r // o may be in use again when goOn is called
	go func() {
		defer r.goOn()
		d.grow()
		if d.err = d.givenUp(); d.err != nil {
			d.o.moved()
			return
		}
		d.run(own)
	}()
}

// givenUp returns how the operation has ended while its data phase goes on, nil if it has not.
func (d *data) givenUp() error {
	if v := d.o.verdict.Load(); v != nil {
		return v.err
	}
	return nil
}

// goOn sends and announces what an operation's own goroutine has done.
func (r *Runner) goOn() {
	if r.colls != nil {
		r.colls.Flush()
	}
	r.comm.Wake()
}

// worker says which goroutine advances the data phase.
type worker bool

const (
	// borrowed is a goroutine that has completed a message. It may have other work that cannot wait, such as this
	// rank's heartbeats, and must not end with a user's operation. It leaves long work to a goroutine of the operation.
	borrowed worker = false
	own      worker = true // a goroutine of the operation
)

// run runs rounds until one has to wait for messages.
func (d *data) run(w worker) {
	for i := int(d.round.Load()); i < len(d.s.Rounds); i++ {
		if !d.launch(d.s.Rounds[i].Comm) || !d.finishRound(w) {
			return
		}
	}
	d.o.moved()
}

// advance goes on once the messages of the round under way are complete.
func (d *data) advance(w worker) {
	if d.finishRound(w) {
		d.run(w)
	}
}

// finishRound ends the round under way, whose messages are complete. It returns false if another goroutine goes on, or
// if the round has ended the data phase with an error.
func (d *data) finishRound(w worker) bool {
	round := &d.s.Rounds[d.round.Load()]
	if w == borrowed && d.long(round.Local) {
		go d.resume()
		return false
	}
	if d.err = d.land(round); d.err != nil {
		d.o.moved()
		return false
	}
	d.round.Add(1)
	return true
}

// launch starts a round's messages and reports whether all are complete
// already. Receives go first, so that the others' messages find them; among
// receives and among sends the order is the schedule's.
func (d *data) launch(actions []coll.Action) bool {
	if len(actions) == 0 {
		return true
	}
	comm := d.o.r.comm
	d.pending.Store(int32(len(actions)) + 1)
	for i := range actions {
		d.reqs[i].Begin()
		if a := &actions[i]; a.Kind == coll.RecvFrom {
			comm.Irecv(&d.reqs[i], d.region(&a.Dst), a.Peer, d.tag)
		}
	}
	for i := range actions {
		if a := &actions[i]; a.Kind == coll.SendTo {
			comm.Isend(&d.reqs[i], d.region(&a.A), a.Peer, d.tag, backend.Standard)
		}
	}
	return d.pending.Add(-1) == 0
}

// land checks a round's messages and does its local actions.
func (d *data) land(round *coll.Round) error {
	for i := range round.Comm {
		a, q := &round.Comm[i], &d.reqs[i]
		got := q.Status.Bytes
		switch {
		case a.Kind == coll.SendTo || q.Err == nil && got == a.Dst.N:
			if q.Err != nil {
				return q.Err
			}
			continue
		case q.Err != nil && backend.Code(q.Err) != truncated:
			return q.Err
		}
		v := wrong{int64(d.o.r.rank), int64(a.Peer), int64(got), int64(a.Dst.N)}
		d.wrong.merge(v)
		if !d.o.compares() && !d.o.call.Coll.Neighbor() {
			// Either the ranks made different calls, which the check finds, or the
			// schedules do not fit together.
			return &lengthError{v}
		}
	}
	if len(round.Local) == 0 {
		return nil
	}
	if d.o.r.oneThread && d.userOp() {
		return d.apart(round.Local)
	}
	return d.local(round.Local)
}

func (d *data) userOp() bool { return d.o.call.Op != nil && d.o.call.Op.Code == backend.OpUser }

// apart is local in a goroutine that a user's operation may end: the caller's may be in the middle of other work.
func (d *data) apart(actions []coll.Action) error {
	err := backend.UserFault(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = d.local(actions)
	}()
	<-done
	return err
}

var truncated = backend.Code(backend.ErrTruncate)

// lengthError reports a message whose length differs from the schedule's.
type lengthError struct{ v wrong }

func (e *lengthError) Error() string {
	return fmt.Sprintf("%v: rank %d sent %d bytes where %d were expected", backend.ErrInternal, e.v.sender, e.v.got, e.v.want)
}

func (e *lengthError) Unwrap() error { return backend.ErrInternal }

// longWork is how many bytes take long to copy or combine: some 50 µs.
const longWork = 256 << 10

// long reports whether a round's copies and reductions may take long. A user's operation always may.
func (d *data) long(actions []coll.Action) bool {
	if d.o.r.oneThread {
		return false
	}
	bytes := 0
	for i := range actions {
		if actions[i].Kind == coll.Reduction && d.userOp() {
			return true
		}
		bytes += actions[i].Dst.N
	}
	return bytes >= longWork
}

// pieceBytes is how much is copied or combined between two looks whether the operation was given up: about a millisecond's
// worth.
const pieceBytes = 4 << 20

// local does a round's copies and reductions. It uses no buffer after the operation has been given up. A user's operation
// may then still run, so it gets copies of its operands. A panic of a user's operation is an error. If the operation ends the
// goroutine, local ends the data phase, unless the caller waits for the goroutine (apart), and does not return.
func (d *data) local(actions []coll.Action) (err error) {
	op, returned := d.o.call.Op, false
	if d.userOp() {
		defer func() {
			if returned {
				return
			}
			p := recover()
			if err = backend.UserFault(p); p == nil && !d.o.r.oneThread {
				d.err = err
				d.o.moved()
			}
		}()
	}
	step := pieceBytes
	if d.userOp() {
		step = coll.BlockBytes
	}
	if t := d.o.call.Type; t != nil {
		step = max(1, step/t.Size) * t.Size
	}
	for i := range actions {
		a := &actions[i]
		dst, x, y := d.region(&a.Dst), d.region(&a.A), d.region(&a.B)
		for {
			n := min(step, len(dst))
			switch {
			case a.Kind == coll.Copy:
				err = d.using(func() { shmem.Move(dst[:n], x) })
			case !d.userOp():
				err = d.using(func() { op.Apply(dst[:n], x[:n], y[:n]) })
			default:
				in, inout := d.aside(n)
				if err = d.using(func() { shmem.Move(in, x[:n]); shmem.Move(inout, y[:n]) }); err == nil {
					op.Apply(inout, in, inout)
					err = d.using(func() { shmem.Move(dst[:n], inout) })
				}
			}
			if err != nil {
				returned = true
				return err
			}
			if n == len(dst) {
				break
			}
			dst, x = dst[n:], x[n:]
			if a.Kind == coll.Reduction {
				y = y[n:]
			}
		}
	}
	returned = true
	return nil
}

// using calls f, which uses the program's buffers, unless the operation has been given up.
func (d *data) using(f func()) error {
	d.buffers.Lock()
	defer d.buffers.Unlock()
	if err := d.givenUp(); err != nil {
		return err
	}
	f()
	return nil
}

// aside returns memory for two operands of n bytes of a user's operation.
func (d *data) aside(n int) (in, inout []byte) {
	if cap(d.operands) < 2*n {
		d.operands = make([]byte, max(2*n, 16)) // shorter memory is not aligned for every element type
	}
	return d.operands[:n:n], d.operands[n : 2*n]
}

func (d *data) region(r *coll.Region) []byte {
	if r.N == 0 {
		return nil
	}
	var b []byte
	switch r.Space {
	case coll.Send:
		b = d.o.call.Send
	case coll.Recv:
		b = d.o.call.Recv
	default:
		b = d.temp
	}
	return b[r.Off : r.Off+r.N : r.Off+r.N]
}

// appendWaiting appends the ranks whose messages of the round under way are missing. It may be
// called while the data moves.
func (d *data) appendWaiting(ranks []int) []int {
	if d.s == nil {
		return ranks
	}
	i := int(d.round.Load())
	if i >= len(d.s.Rounds) {
		return ranks
	}
	for j := range d.s.Rounds[i].Comm {
		if d.reqs[j].Active() {
			ranks = append(ranks, d.s.Rounds[i].Comm[j].Peer)
		}
	}
	return ranks
}
