package shm

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// The rendezvous of long and synchronous messages. The sender announces the message (ready to send,
// RTS): a desc of its table, the address of the buffer, and a generation, so that an old
// announcement is never taken for a new one. The receiver takes it, and then both copy chunks that
// they claim one by one, the receiver by reading, the sender by writing: the one that has nothing
// else to do copies more. The receiver sets the state to finished when all chunks are copied.
//
//	free → RTS (sender) → accepted → taken → finished (receiver) → free (sender)
//	          └──────────────┴─────────┴→ revoked (sender) → free (sender)
//
// A sender revokes a message that has been taken only if it has to give up. What was copied does not
// count then, because the receiver cannot finish any more.
//
// Invariant: every word that both sides write contains the generation and is changed by
// compare-and-swap; dst and n change only between accepted and taken. A late rank with an old
// announcement changes nothing.
const (
	descFree uint64 = iota
	descRTS
	descAccepted
	descTaken
	descFinished
	descRevoked
)

func descState(gen, state uint64) uint64 { return gen<<8 | state }

// chunkMax is the longest chunk: about 10 µs, with the engine's lock held.
const chunkMax = 128 << 10

// chunkSize is the bytes of one claim, known to both sides from the length:
// long enough to be worth a system call, short enough to share.
func chunkSize(n int) int {
	c := (n/8 + 4095) &^ 4095
	return min(max(c, 16<<10), chunkMax)
}

func chunkCount(n int) uint32 {
	c := chunkSize(n)
	return uint32((n + c - 1) / c)
}

// grab gives a send a desc, in state RTS.
func (e *engine) grab(o *op) bool {
	if len(e.freeDesc) == 0 && !e.reclaim() {
		return false
	}
	k := len(e.freeDesc)
	o.idx = e.freeDesc[k-1]
	e.freeDesc = e.freeDesc[:k-1]
	e.gens[o.idx] = (e.gens[o.idx] + 1) & 0xffffffff
	o.gen, o.desc = e.gens[o.idx], e.mine[o.idx]
	o.at, o.n = 0, 0
	o.desc.claim.Store(o.gen << 32)
	o.desc.done.Store(o.gen << 32)
	o.desc.n.Store(0)
	o.desc.state.Store(descState(o.gen, descRTS))
	o.state = opRTS
	e.rts[o.idx] = o
	e.rtsOpen++
	return true
}

// release gives the desc back.
func (e *engine) release(o *op) {
	o.desc.state.Store(descState(o.gen, descFree))
	e.rts[o.idx] = nil
	e.rtsOpen--
	e.freeDesc = append(e.freeDesc, o.idx)
	o.desc = nil
}

// sendRTS announces a long message.
func (e *engine) sendRTS(o *op, out *outRing) bool {
	if len(e.freeDesc) == 0 && !e.reclaim() {
		return false
	}
	cell, room, ok := out.room(rtsSize)
	if !ok || !e.grab(o) {
		return false
	}
	putRTS(room, o.idx, o.gen, shmem.Addr(o.buf))
	out.publish(cell, kindRTS, o.comm.id, o.tag, len(o.buf))
	e.ring(o.peer)
	return true
}

// revoke takes an announcement back, unless the receiver has taken it.
func (e *engine) revoke(o *op) bool {
	if !o.desc.state.CompareAndSwap(descState(o.gen, descRTS), descState(o.gen, descRevoked)) {
		return false
	}
	e.release(o)
	return true
}

// withdraw takes an announcement back even from a receiver that has taken it. It returns false if
// the receiver has finished.
func (e *engine) withdraw(o *op) bool {
	for {
		s := o.desc.state.Load()
		if s == descState(o.gen, descFinished) {
			return false
		}
		if !o.desc.state.CompareAndSwap(s, descState(o.gen, descRevoked)) {
			continue
		}
		if s == descState(o.gen, descAccepted) {
			e.hold(o)
		} else {
			e.release(o)
		}
		return true
	}
}

// heldDesc is a desc that was withdrawn while its receiver was writing dst and n into it. It must
// not be used again before the receiver has noticed that or has ended: one that was stopped in
// between would write into the next transfer.
type heldDesc struct {
	idx  int
	gen  uint64
	peer int
}

// hold is release for a desc that the receiver may still write to.
func (e *engine) hold(o *op) {
	e.held = append(e.held, heldDesc{o.idx, o.gen, o.peer})
	e.rts[o.idx], o.desc = nil, nil
	e.rtsOpen--
}

// reclaim frees held descs that no receiver writes to any more, and reports whether any desc is
// free.
func (e *engine) reclaim() bool {
	e.held = slices.DeleteFunc(e.held, func(h heldDesc) bool {
		d := e.mine[h.idx]
		if !e.dead[h.peer] && d.state.Load() != descState(h.gen, descFree) {
			return false
		}
		d.state.Store(descState(h.gen, descFree))
		e.freeDesc = append(e.freeDesc, h.idx)
		return true
	})
	return len(e.freeDesc) > 0
}

// refuse finishes a transfer that no receive will take.
func (e *engine) refuse(src int, d *desc, gen uint64) {
	if d.state.CompareAndSwap(descState(gen, descRTS), descState(gen, descFinished)) {
		e.ring(src)
	}
}

// accept takes an announced message for a receive. It returns false if the sender has revoked it.
func (e *engine) accept(o *op, d *desc, gen, addr uint64, size int, env match.Env) bool {
	n := min(size, len(o.buf))
	if !d.state.CompareAndSwap(descState(gen, descRTS), descState(gen, descAccepted)) {
		return false
	}
	e.posted.Remove(&o.node) // if it is in the queue
	src := int(env.Source)
	d.dst.Store(shmem.Addr(o.buf))
	d.n.Store(uint64(n))
	if !d.state.CompareAndSwap(descState(gen, descAccepted), descState(gen, descTaken)) {
		// Revoked meanwhile, as take finds out: the sender may reuse its desc.
		d.state.CompareAndSwap(descState(gen, descRevoked), descState(gen, descFree))
	}
	o.desc, o.gen, o.addr, o.n, o.size, o.at = d, gen, addr, n, size, 0
	o.peer, o.tag, o.env, o.end = src, env.Tag, env, nil
	o.chunks = chunkCount(n)
	o.state = opTaking
	if src == e.me { // both buffers are ours
		idx := e.descIndex(d)
		if s := e.rts[idx]; s != nil && s.gen == gen {
			copy(o.buf[:n], s.buf)
		}
		o.chunks = 0
	}
	e.takes = append(e.takes, o)
	if f := e.lost[src].Load(); f != nil && n > 0 {
		e.stopTake(o, f) // it has ended, or its buffer has been reused
		e.fenceTakes()
	}
	if n > 0 && src != e.me {
		e.ring(src) // it may help
	}
	e.moveTakes()
	return true
}

func (e *engine) descIndex(d *desc) int {
	for i, m := range e.mine {
		if m == d {
			return i
		}
	}
	return 0
}

// claim gets a chunk of a transfer to copy.
func claim(d *desc, gen uint64, chunks uint32) (uint32, bool) {
	for {
		v := d.claim.Load()
		i := uint32(v)
		if v>>32 != gen || i >= chunks {
			return 0, false
		}
		if d.claim.CompareAndSwap(v, v+1) {
			return i, true
		}
	}
}

// copied counts a chunk as done and returns how many are.
func copied(d *desc, gen uint64) uint32 {
	for {
		v := d.done.Load()
		if v>>32 != gen {
			return 0
		}
		if d.done.CompareAndSwap(v, v+1) {
			return uint32(v + 1)
		}
	}
}

// closeClaims stops further claims and returns how many chunks have been claimed.
func closeClaims(d *desc, gen uint64, chunks uint32) uint32 {
	for {
		v := d.claim.Load()
		if i := uint32(v); v>>32 != gen || i >= chunks {
			return chunks
		}
		if d.claim.CompareAndSwap(v, gen<<32|uint64(chunks)) {
			return uint32(v)
		}
	}
}

// stopTake ends a receive in progress with err as soon as the sender no longer writes to its
// buffer.
func (e *engine) stopTake(o *op, err error) {
	if o.end != nil {
		return
	}
	o.end = err
	if e.cma && o.chunks > 0 {
		o.chunks = closeClaims(o.desc, o.gen, o.chunks)
	} else {
		o.chunks = 0
	}
}

// moveTakes copies one chunk of every receive in progress.
func (e *engine) moveTakes() bool {
	moved := false
	for i := 0; i < len(e.takes); {
		o := e.takes[i]
		if e.take(o, &moved) {
			last := len(e.takes) - 1
			e.takes[i], e.takes[last] = e.takes[last], nil
			e.takes = e.takes[:last]
			continue
		}
		i++
	}
	return moved
}

// take moves one receive forward and reports whether it has ended. A receive from a lost rank ends
// when that rank cannot write to its buffer any more.
func (e *engine) take(o *op, moved *bool) bool {
	taken := descState(o.gen, descTaken)
	if o.desc.state.Load() != taken { // withdrawn: the sender no longer writes
		if o.end == nil {
			o.end = e.withdrawn(o)
		}
		if o.end == nil {
			return false
		}
		*moved = true
		e.finish(o, backend.Status{}, o.end)
		return true
	}
	if !e.cma && o.chunks > 0 {
		if o.at < o.n {
			return false // chunks come through the ring
		}
	} else if o.chunks > 0 {
		if i, ok := claim(o.desc, o.gen, o.chunks); ok {
			*moved = true
			size := chunkSize(o.n)
			lo := int(i) * size
			hi := min(lo+size, o.n)
			if err := shmem.ReadProcess(e.pids[o.peer], o.addr+uint64(lo), o.buf[lo:hi]); err != nil {
				copied(o.desc, o.gen) // no one else copies this chunk
				if o.desc.state.Load() == taken {
					e.copyFailed(o.peer, err)
					if shmem.Gone(err) { // a chunk that was not read is not received, whether or not the loss is known
						e.stopTake(o, e.leftFault(o.comm, o.peer))
					}
				}
				return false
			}
			copied(o.desc, o.gen)
		}
		if v := o.desc.done.Load(); v>>32 == o.gen && uint32(v) < o.chunks && !(o.end != nil && e.dead[o.peer]) {
			return false
		}
	}
	*moved = true
	if !o.desc.state.CompareAndSwap(taken, descState(o.gen, descFinished)) {
		return false
	}
	if o.peer != e.me {
		e.ring(o.peer)
	}
	if o.end != nil {
		e.finish(o, backend.Status{}, o.end)
	} else {
		e.received(o, o.env, o.size, o.n)
	}
	return true
}

// withdrawn returns why a sender has withdrawn a message that was taken, nil if the notice has not
// arrived yet.
func (e *engine) withdrawn(o *op) error {
	if f := o.comm.end.Load(); f != nil {
		return f
	}
	if f := o.comm.brk.Load(); f != nil {
		return brokenBy(f)
	}
	if r := o.comm.RankOf(o.peer); o.comm.isGone(r) {
		return o.comm.goneFault(r)
	}
	return nil
}

// chunk receives a part of a long message through the ring.
func (e *engine) chunk(src int, idx, gen uint64, payload []byte) bool {
	for _, o := range e.takes {
		if o.peer == src && idx < descs && o.desc == e.peers[src][idx] && o.gen == gen {
			if len(payload) > o.n-o.at {
				return false
			}
			o.at += copy(o.buf[o.at:o.n], payload)
			return true
		}
	}
	return true // the receive has ended since
}

// moveRTS completes this rank's announced messages that have finished, and helps with those that
// are being copied.
func (e *engine) moveRTS() bool {
	moved := false
	left := e.rtsOpen
	for i := 0; i < descs && left > 0; i++ {
		o := e.rts[i]
		if o == nil {
			continue
		}
		left--
		switch o.desc.state.Load() {
		case descState(o.gen, descFinished):
			e.release(o)
			e.finish(o, backend.Status{}, nil)
			moved = true
		case descState(o.gen, descTaken):
			if e.help(o) {
				moved = true
			}
		}
	}
	return moved
}

// help copies a part of a message that the receiver has taken.
func (e *engine) help(o *op) bool {
	n := o.desc.n.Load()
	if n > uint64(len(o.buf)) {
		e.fail(o.peer, backend.ErrInternal, fmt.Sprintf("rank %d: rank %d takes %d bytes of a message of %d", e.me, o.peer, n, len(o.buf)))
		return true
	}
	if !e.cma {
		return e.pushChunks(o, int(n))
	}
	i, ok := claim(o.desc, o.gen, chunkCount(int(n)))
	if !ok {
		return false
	}
	size := chunkSize(int(n))
	lo := int(i) * size
	hi := min(lo+size, int(n))
	if err := shmem.WriteProcess(e.pids[o.peer], o.desc.dst.Load()+uint64(lo), o.buf[lo:hi]); err != nil {
		e.copyFailed(o.peer, err)
		return true
	}
	if copied(o.desc, o.gen) == chunkCount(int(n)) {
		e.ring(o.peer)
	}
	return true
}

// pushChunks sends parts of a long message through the data ring while there is
// room.
func (e *engine) pushChunks(o *op, n int) bool {
	moved := false
	out := &e.out[o.peer]
	for o.at < n {
		k := min(n-o.at, len(out.data)/4)
		cell, room, ok := out.room(footprint(kindChunk, k))
		if !ok {
			break
		}
		copy(room[:k], o.buf[o.at:])
		putRTS(cell.data[:], o.idx, o.gen, 0)
		out.publish(cell, kindChunk, o.comm.id, o.tag, k)
		o.at += k
		moved = true
	}
	if moved {
		e.ring(o.peer)
	}
	return moved
}

// copyFailed handles a failed copy: either the peer has ended, which the watch will report too, or
// it is an internal error. The next progress does what follows from a loss, because this is called
// in the middle of other work.
func (e *engine) copyFailed(peer int, err error) {
	if shmem.Gone(err) {
		e.lose(peer, "")
		return
	}
	e.fail(peer, backend.ErrInternal, err.Error())
}
