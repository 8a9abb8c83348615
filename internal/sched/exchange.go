package sched

import (
	"encoding/binary"
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// exchange is a dissemination exchange (Hensgen, Finkel and Manber 1988). In round k each
// rank sends what it has seen to the rank 2^k above it, and receives what the rank 2^k below
// it has seen. After ceil(log2 n) rounds each has seen all. With several nodes, the lowest
// ranks of the nodes do this, after they have collected what their nodes have, and then
// distribute the result.
type exchange struct {
	o    *Op
	tag  int
	step word.Int32 // the leg under way; also read for reports

	// pending counts the messages of the round that are not complete, and one
	// more while the round is being started. The goroutine that decrements it to 0 goes
	// on, so that only one at a time uses the state below.
	pending    word.Int32
	send, recv backend.Request
	out, in    [backend.SeenSize]byte

	seen  backend.Seen // the check
	wrong wrong        // or the lengths
	err   error
}

// lengths reports whether the exchange is that of lengths after the data phase, and not the check.
func (x *exchange) lengths() bool { return x.o.now().data() == comparing }

// wrong is the lowest receiver that found a wrong length, and its lowest sender.
type wrong struct {
	receiver, sender int64 // receiver -1: none
	got, want        int64 // bytes
}

func (v *wrong) merge(o wrong) {
	if o.receiver >= 0 && (v.receiver < 0 || o.receiver < v.receiver || o.receiver == v.receiver && o.sender < v.sender) {
		*v = o
	}
}

func (v *wrong) fault(elem int) error {
	return backend.WrongLength(elem, int(v.sender), int(v.got), int(v.receiver), int(v.want))
}

func (x *exchange) init(o *Op) {
	x.o = o
	notify := func(*backend.Request) {
		if x.pending.Add(-1) == 0 {
			x.advance()
		}
	}
	x.send.Notify, x.recv.Notify = notify, notify
}

// begin starts the exchange; when it ends it calls the Op's exchanged.
func (x *exchange) begin(tag int) {
	x.tag, x.err = tag, nil
	x.step.Store(0)
	x.run()
}

// run runs legs until one has to wait for messages.
func (x *exchange) run() {
	legs := x.o.r.legs
	for i := int(x.step.Load()); i < len(legs); i++ {
		if !x.launch(&legs[i]) || !x.finishLeg() {
			return
		}
	}
	x.o.exchanged(x)
}

// advance goes on once the messages of the leg under way are complete.
func (x *exchange) advance() {
	if x.finishLeg() {
		x.run()
	}
}

// finishLeg ends the leg under way, whose messages are complete. It returns false if that has ended the exchange with an
// error.
func (x *exchange) finishLeg() bool {
	if x.err = x.take(&x.o.r.legs[x.step.Load()]); x.err != nil {
		x.o.exchanged(x)
		return false
	}
	x.step.Add(1)
	return true
}

// launch starts a leg's messages and reports whether they have completed at once.
func (x *exchange) launch(l *leg) bool {
	r, out := x.o.r, x.encode()
	x.send.Begin()
	x.recv.Begin()
	x.pending.Store(3)
	if l.from >= 0 && l.to >= 0 && r.colls != nil {
		r.colls.Exchange(&x.recv, &x.send, x.in[:], out, l.from, l.to, x.tag)
		return x.pending.Add(-1) == 0
	}
	none := int32(0) // messages that there are not
	if l.from >= 0 {
		r.comm.Irecv(&x.recv, x.in[:], l.from, x.tag)
	} else {
		none++
	}
	if l.to >= 0 {
		r.comm.Isend(&x.send, out, l.to, x.tag, backend.Standard)
	} else {
		none++
	}
	return x.pending.Add(-1-none) == 0
}

// wrongSize is the length of an encoded wrong in bytes. It is not that of a Seen: a rank that still waits for the
// others' calls may get one under the same tag.
const wrongSize = 32

// encode returns the message that passes on what this rank has seen.
func (x *exchange) encode() []byte {
	if !x.lengths() {
		x.seen.Encode(x.out[:])
		return x.out[:]
	}
	for i, w := range [...]int64{x.wrong.receiver, x.wrong.sender, x.wrong.got, x.wrong.want} {
		binary.LittleEndian.PutUint64(x.out[8*i:], uint64(w))
	}
	return x.out[:wrongSize]
}

// take merges what was received. A rank sends its first message of a check as soon as it makes the call, and that message
// covers the sender alone. If it is missing because its sender has left, the sender has not made the call, and the
// check fails. A later message may be missing although its sender has made the call: see leave.
func (x *exchange) take(l *leg) error {
	if l.to >= 0 && x.send.Err != nil && !x.o.goesOnAfter(x.send.Err) {
		return x.send.Err
	}
	switch {
	case l.from < 0:
		return nil
	case x.recv.Err != nil && (l.count > 1 || x.lengths()) && x.o.goesOnAfter(x.recv.Err):
		return nil
	case x.recv.Err != nil:
		return x.recv.Err
	}
	if x.lengths() {
		switch x.recv.Status.Bytes {
		case wrongSize:
		case backend.SeenSize: // of leave
			return nil
		default:
			return x.garbage()
		}
		word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(x.in[8*i:])) }
		x.wrong.merge(wrong{word(0), word(1), word(2), word(3)})
		return nil
	}
	seen, ok := backend.DecodeSeen(x.in[:x.recv.Status.Bytes], x.o.r.size)
	if !ok {
		return x.garbage()
	}
	x.seen.Merge(seen)
	return nil
}

func (x *exchange) garbage() error {
	return &backend.Fault{Sentinel: backend.ErrInternal, Text: fmt.Sprintf("rank %d sent %d bytes that are not a check",
		x.recv.Status.Source, x.recv.Status.Bytes)}
}

// appendWaiting appends the rank this exchange waits for, if any. It may be called
// while the exchange goes on.
func (x *exchange) appendWaiting(ranks []int) []int {
	legs := x.o.r.legs
	if i := int(x.step.Load()); i < len(legs) && legs[i].from >= 0 && x.recv.Active() {
		ranks = append(ranks, legs[i].from)
	}
	return ranks
}
