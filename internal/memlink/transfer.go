package memlink

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// A transfer copies a long message from process to process. The sender announces it: a desc of its
// table, the address of the buffer, and a generation, so that an old announcement is never taken for a
// new one. The receiver accepts it, and then both copy chunks that they claim one by one, the receiver by
// reading, the sender by writing: the one that has nothing else to do copies more. The receiver sets the
// state to finished when all chunks are copied.
//
//	free → announced (sender) → accepted → taken → finished (receiver) → free (sender)
//	          └────────────────────┴─────────┴→ revoked (sender) → free (sender)
//
// A sender that has to give up revokes even a message that the receiver has taken. The chunks copied so far
// do not count then, because the receiver cannot finish any more.
//
// Invariant: every word that both sides write contains the generation and is changed by
// compare-and-swap; dst and n change only between accepted and taken. A late rank with an old
// announcement changes nothing.
//
// A rank that is stopped between claiming a chunk and writing it would write when it runs again. While
// its process exists the receiver does not finish, and if the rank is declared lost its process is killed
// (see Fence): nothing else keeps it from writing into a buffer that was given back.
const (
	descFree uint64 = iota
	descAnnounced
	descAccepted
	descTaken
	descFinished
	descRevoked
)

func descState(gen, state uint64) uint64 { return gen<<8 | state }

// chunkMax is the longest chunk: about 10 µs, with the engine's lock held.
const chunkMax = 128 << 10

// chunkSize is the bytes of one claim, known to both sides from the length: long enough to be worth a
// system call, short enough to share.
func chunkSize(n int) int {
	c := (n/8 + 4095) &^ 4095
	return min(max(c, 16<<10), chunkMax)
}

func chunkCount(n int) uint32 {
	c := chunkSize(n)
	return uint32((n + c - 1) / c)
}

// Transfer is one end of a transfer in progress.
type Transfer struct {
	Owner any // the operation that it belongs to

	buf    []byte // the message, or where it goes
	desc   *desc
	idx    int
	gen    uint64
	addr   uint64 // in the sender
	n      int    // bytes to copy
	chunks uint32
	unread bool      // the sender ended before the receiver had read a chunk
	end    error     // why the receiver gives up
	begun  time.Time // of a receive that is measured
}

// Token identifies an announced transfer for the peer.
func (t *Transfer) Token() uint64 { return t.gen<<8 | uint64(t.idx) }

// Active reports whether the transfer has begun and not ended.
func (t *Transfer) Active() bool { return t.desc != nil }

// Announce prepares the transfer of a message, and reports false if too many are announced. The caller
// sends the peer the token and the address.
func (l *Link) Announce(t *Transfer, buf []byte) (addr uint64, ok bool) {
	if len(l.spare) == 0 && !l.reclaim() {
		return 0, false
	}
	k := len(l.spare)
	t.idx = l.spare[k-1]
	l.spare = l.spare[:k-1]
	l.gens[t.idx] = (l.gens[t.idx] + 1) & 0xffffffff
	t.buf, t.gen, t.desc = buf, l.gens[t.idx], &l.mine[t.idx]
	t.desc.claim.Store(t.gen << 32)
	t.desc.done.Store(t.gen << 32)
	t.desc.n.Store(0)
	t.desc.state.Store(descState(t.gen, descAnnounced))
	l.sends[t.idx] = t
	return shmem.Addr(buf), true
}

// release gives the desc of a transfer back.
func (l *Link) release(t *Transfer) {
	t.desc.state.Store(descState(t.gen, descFree))
	l.sends[t.idx] = nil
	l.spare = append(l.spare, t.idx)
	t.desc, t.buf = nil, nil
}

// Revoke takes an announcement back, unless the receiver has accepted it.
func (l *Link) Revoke(t *Transfer) bool {
	if !t.desc.state.CompareAndSwap(descState(t.gen, descAnnounced), descState(t.gen, descRevoked)) {
		return false
	}
	l.release(t)
	return true
}

// Withdraw takes an announcement back even from a receiver that has accepted it. It returns false if the
// receiver has finished; the transfer is over in both cases.
func (l *Link) Withdraw(t *Transfer) bool {
	for {
		s := t.desc.state.Load()
		if s == descState(t.gen, descFinished) {
			l.release(t)
			return false
		}
		if !t.desc.state.CompareAndSwap(s, descState(t.gen, descRevoked)) {
			continue
		}
		if s == descState(t.gen, descAccepted) {
			l.held = append(l.held, heldDesc{t.idx, t.gen})
			l.sends[t.idx], t.desc, t.buf = nil, nil, nil
		} else {
			l.release(t)
		}
		l.wake() // the receiver may have stopped, and wait for this
		return true
	}
}

// heldDesc is a desc that was withdrawn while its receiver was writing dst and n into it. It must not be
// used again before the receiver has noticed that or has ended: one that was stopped in between would
// write into the next transfer.
type heldDesc struct {
	idx int
	gen uint64
}

// reclaim frees held descs that the receiver writes to no more, and reports whether any desc is free.
func (l *Link) reclaim() bool {
	l.held = slices.DeleteFunc(l.held, func(h heldDesc) bool {
		d := &l.mine[h.idx]
		if !l.gone() && d.state.Load() != descState(h.gen, descFree) {
			return false
		}
		d.state.Store(descState(h.gen, descFree))
		l.spare = append(l.spare, h.idx)
		return true
	})
	return len(l.spare) > 0
}

// announced returns the desc and generation of a token from the peer, nil if there is no such desc.
func (l *Link) announced(token uint64) (*desc, uint64) {
	idx, gen := token&0xff, token>>8
	if idx >= descs || gen > 0xffffffff {
		return nil, 0
	}
	return &l.theirs[idx], gen
}

// Valid reports whether a token from the peer can be one.
func (l *Link) Valid(token uint64) bool {
	d, _ := l.announced(token)
	return d != nil
}

// Announced reports whether the sender has not revoked a message that was not accepted.
func (l *Link) Announced(token uint64) bool {
	d, gen := l.announced(token)
	return d.state.Load() == descState(gen, descAnnounced)
}

// Refuse finishes a transfer that no receive will accept.
func (l *Link) Refuse(token uint64) {
	d, gen := l.announced(token)
	if d.state.CompareAndSwap(descState(gen, descAnnounced), descState(gen, descFinished)) {
		l.wake()
	}
}

// Accept starts to receive an announced message into buf, which is not longer than the message. It
// returns false if the sender has revoked the message. Step completes it.
func (l *Link) Accept(t *Transfer, token, addr uint64, buf []byte) bool {
	d, gen := l.announced(token)
	if !d.state.CompareAndSwap(descState(gen, descAnnounced), descState(gen, descAccepted)) {
		return false
	}
	d.dst.Store(shmem.Addr(buf))
	d.n.Store(uint64(len(buf)))
	if !d.state.CompareAndSwap(descState(gen, descAccepted), descState(gen, descTaken)) {
		// Revoked meanwhile, as Step finds out: the sender may reuse its desc.
		d.state.CompareAndSwap(descState(gen, descRevoked), descState(gen, descFree))
	}
	t.desc, t.gen, t.addr, t.buf, t.n = d, gen, addr, buf, len(buf)
	t.chunks, t.unread, t.end = chunkCount(t.n), false, nil
	t.begun = time.Time{}
	if l.cfg.Spare && t.n >= timedMin {
		t.begun = l.pace.now()
	}
	l.takes = append(l.takes, t)
	if t.n > 0 {
		l.wake() // it may help
	}
	return true
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

// Stop ends a receive with err as soon as the sender no longer writes to its buffer.
func (l *Link) Stop(t *Transfer, err error) {
	if t.end != nil {
		return
	}
	t.end = err
	if t.chunks > 0 {
		t.chunks = closeClaims(t.desc, t.gen, t.chunks)
	}
}

// A Completer is told which transfers have ended.
type Completer interface {
	Sent(t *Transfer)
	Received(t *Transfer, err error)
	// Withdrawn returns why the sender has withdrawn a message that was accepted; nil if that is not
	// known yet.
	Withdrawn(t *Transfer) error
}

// Receiving reports whether there is a receive in progress.
func (l *Link) Receiving() bool { return len(l.takes) > 0 }

// Busy reports whether Step has work.
func (l *Link) Busy() bool { return len(l.takes) > 0 || len(l.spare)+len(l.held) < descs }

// Step copies one chunk of every transfer in progress, and reports whether anything moved. An error means
// that the peer's memory cannot be accessed although its process exists.
func (l *Link) Step(c Completer) (moved bool, err error) {
	for i := 0; i < len(l.takes) && err == nil; {
		t := l.takes[i]
		var ended bool
		if ended, err = l.take(c, t, &moved); ended {
			l.takes = slices.Delete(l.takes, i, i+1)
			end := t.end
			t.desc, t.buf = nil, nil
			c.Received(t, end)
			continue
		}
		i++
	}
	for i, left := 0, descs-len(l.spare)-len(l.held); i < descs && left > 0 && err == nil; i++ {
		t := l.sends[i]
		if t == nil {
			continue
		}
		left--
		switch t.desc.state.Load() {
		case descState(t.gen, descFinished):
			l.release(t)
			c.Sent(t)
			moved = true
		case descState(t.gen, descTaken):
			var did bool
			did, err = l.help(t)
			moved = moved || did
		}
	}
	return moved, err
}

// take moves one receive forward and reports whether it has ended. A receive from a lost rank ends when
// that rank cannot write to its buffer any more.
func (l *Link) take(c Completer, t *Transfer, moved *bool) (ended bool, err error) {
	taken := descState(t.gen, descTaken)
	if t.desc.state.Load() != taken { // withdrawn: the sender no longer writes
		if t.end == nil {
			t.end = c.Withdrawn(t)
		}
		*moved = *moved || t.end != nil
		return t.end != nil, nil
	}
	if t.chunks > 0 {
		if i, ok := claim(t.desc, t.gen, t.chunks); ok {
			*moved = true
			size := chunkSize(t.n)
			lo := int(i) * size
			hi := min(lo+size, t.n)
			err := shmem.ReadProcess(l.cfg.PID, t.addr+uint64(lo), t.buf[lo:hi])
			copied(t.desc, t.gen) // if it failed, no one else copies this chunk
			if err != nil && t.desc.state.Load() == taken {
				if !shmem.Gone(err) {
					return false, fmt.Errorf("reading the memory of process %d: %w", l.cfg.PID, err)
				}
				l.Ended(nil)
				t.chunks, t.unread = closeClaims(t.desc, t.gen, t.chunks), true
				t.end = c.Withdrawn(t)
				return false, nil
			}
		}
		if v := t.desc.done.Load(); v>>32 == t.gen && uint32(v) < t.chunks && !l.gone() {
			return false, nil
		}
		if l.gone() && t.end == nil && (t.unread || uint32(t.desc.done.Load()) < chunkCount(t.n)) {
			return false, nil // the loss of the peer stops it
		}
	}
	*moved = true
	if !t.desc.state.CompareAndSwap(taken, descState(t.gen, descFinished)) {
		return false, nil
	}
	l.wake()
	if !t.begun.IsZero() && t.end == nil {
		l.pace.copied(t.n, l.pace.now().Sub(t.begun))
	}
	return true, nil
}

// help copies a part of a message that the receiver has taken.
func (l *Link) help(t *Transfer) (bool, error) {
	n := t.desc.n.Load()
	if n > uint64(len(t.buf)) {
		return true, fmt.Errorf("the rank takes %d bytes of a message of %d", n, len(t.buf))
	}
	i, ok := claim(t.desc, t.gen, chunkCount(int(n)))
	if !ok {
		return false, nil
	}
	size := chunkSize(int(n))
	lo := int(i) * size
	hi := min(lo+size, int(n))
	if err := shmem.WriteProcess(l.cfg.PID, t.desc.dst.Load()+uint64(lo), t.buf[lo:hi]); err != nil {
		if shmem.Gone(err) {
			l.Ended(nil)
			return true, nil
		}
		return true, fmt.Errorf("writing to the memory of process %d: %w", l.cfg.PID, err)
	}
	copied(t.desc, t.gen)
	if uint32(t.desc.claim.Load()) >= chunkCount(int(n)) { // no chunk is left: the receiver may be waiting for this one
		l.wake()
	}
	return true, nil
}

// Fence kills the peer's process if it has claimed a part of a buffer here and not written it, because it
// was stopped just then. The caller has waited after Stop for longer than a copy takes.
func (l *Link) Fence() {
	if len(l.takes) > 0 && !l.gone() && l.cfg.Kill != nil {
		l.cfg.Kill()
	}
}

// Abandon ends all receives in progress at once, with the errors of Stop. Buffers that the peer may still
// write to are kept from being used again.
func (l *Link) Abandon(c Completer) {
	for _, t := range l.takes {
		kept.add(t.buf)
		end := t.end
		t.desc, t.buf = nil, nil
		c.Received(t, end)
	}
	l.takes = nil
}

// kept holds buffers that a peer may still write to. The process keeps them as long as it runs, though
// their owners forget them.
var kept keeper

type keeper struct {
	mu   sync.Mutex
	bufs [][]byte
}

func (k *keeper) add(b []byte) {
	k.mu.Lock()
	k.bufs = append(k.bufs, b)
	k.mu.Unlock()
}
