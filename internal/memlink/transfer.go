package memlink

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// A transfer copies a long message from process to process. The sender announces it: a desc of its
// table, the address of the buffer, and a generation, so that an old announcement is never taken for a
// new one. The receiver takes it, and then both copy chunks that they claim one by one, the receiver by
// reading, the sender by writing: the one that has nothing else to do copies more. The receiver sets the
// state to finished when all chunks are copied.
//
//	free → announced (sender) → taken → finished or refused (receiver) → free (sender)
//	          └──────────────────┴→ free (sender)
//
// The kernel does not copy all memory from process to process, such as that of memfd_secret. If one of the two cannot
// copy a chunk, the receiver refuses the transfer as soon as the sender does not copy any more, and asks for the
// message through the rings.
//
// A sender that has to give up frees even the desc of a message that the receiver has taken. The chunks copied
// so far do not count then, because the receiver cannot finish any more.
//
// Invariant: every word that both sides write contains the generation and is changed by
// compare-and-swap. The receiver writes into its own table where the data go, before it takes the message. A
// late rank with an old announcement changes nothing.
//
// A rank that is stopped between claiming a chunk and writing it would write when it runs again. While
// its process exists the receiver does not finish, and if the rank is declared lost its process is killed
// (see Fence): nothing else keeps it from writing into a buffer that was given back.
const (
	descFree uint64 = iota
	descAnnounced
	descTaken
	descFinished
	descRefused
)

// notCopied is the value of copied if the sender has claimed a chunk and cannot copy it.
const notCopied = math.MaxUint32

func descState(gen, state uint64) uint64 { return gen<<8 | state }

// chunkSize is the bytes of one claim of a message of n bytes, known to both sides.
func chunkSize(n int) int {
	c := (n/8 + chunkAlign - 1) &^ (chunkAlign - 1)
	return min(max(c, chunkMin), chunkMax)
}

func chunkCount(n int) uint32 {
	c := chunkSize(n)
	return uint32((n + c - 1) / c)
}

// chunk returns where chunk i of n bytes begins and ends.
func chunk(n int, i uint32) (lo, hi int) {
	lo = int(i) * chunkSize(n)
	return lo, min(lo+chunkSize(n), n)
}

// Transfer is one end of a transfer in progress.
type Transfer struct {
	Owner  any    // the operation that it belongs to
	Sender uint64 // the sender's operation, which the receiver asks for the message if it refuses the transfer

	buf    []byte // the message, or where it goes
	desc   *desc
	idx    int
	gen    uint64
	addr   uint64 // in the sender
	n      int    // bytes to copy
	chunks uint32
	unread bool      // the sender ended before the receiver had read a chunk
	end    error     // why the receiver gives up; ErrRefused: something else may still end the receive
	begun  time.Time // of a receive that is measured
}

// Token identifies an announced transfer for the peer.
func (t *Transfer) Token() uint64 { return t.gen<<8 | uint64(t.idx) }

// Active reports whether the transfer has begun and not ended.
func (t *Transfer) Active() bool { return t.desc != nil }

// Announce prepares the transfer of a message, and reports false if too many are announced. The caller
// sends the peer the token and the address.
func (l *Link) Announce(t *Transfer, buf []byte) (addr uint64, ok bool) {
	k := len(l.spare)
	if k == 0 || l.Make() != nil {
		return 0, false
	}
	t.idx = l.spare[k-1]
	l.spare = l.spare[:k-1]
	l.gens[t.idx] = (l.gens[t.idx] + 1) & 0xffffffff
	t.buf, t.gen, t.desc = buf, l.gens[t.idx], &l.mine[t.idx]
	t.desc.claimed.Store(t.gen << 32)
	t.desc.copied.Store(t.gen << 32)
	t.desc.op.Store(t.Sender)
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

// Revoke takes an announcement back, unless the receiver has taken the message.
func (l *Link) Revoke(t *Transfer) bool {
	if !t.desc.state.CompareAndSwap(descState(t.gen, descAnnounced), descState(t.gen, descFree)) {
		return false
	}
	l.release(t)
	return true
}

// TakeRefusal reports whether the receiver has refused a transfer. It ends the transfer then.
func (l *Link) TakeRefusal(t *Transfer) bool {
	refused := t.Active() && t.desc.state.Load() == descState(t.gen, descRefused)
	if refused {
		l.release(t)
	}
	return refused
}

// Withdraw takes back even a message that the receiver has taken, or refused. It returns false if the receiver has
// finished; the transfer is over in both cases.
func (l *Link) Withdraw(t *Transfer) bool {
	if l.Revoke(t) {
		return true
	}
	withdrawn := t.desc.state.CompareAndSwap(descState(t.gen, descTaken), descState(t.gen, descFree)) ||
		t.desc.state.Load() == descState(t.gen, descRefused)
	l.release(t)
	if withdrawn {
		l.Ring() // the receiver may have stopped, and wait for this
	}
	return withdrawn
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
	return d != nil && l.made
}

// Announced reports whether the sender has not revoked a message that was not accepted.
func (l *Link) Announced(token uint64) bool {
	d, gen := l.announced(token)
	return d.state.Load() == descState(gen, descAnnounced)
}

// Revoked reports whether the sender has taken back an announcement that has not been accepted.
func (l *Link) Revoked(token uint64) bool {
	d, gen := l.announced(token)
	return d.state.Load() != descState(gen, descAnnounced)
}

// Accept starts to receive an announced message into buf, which is not longer than the message. It
// returns false if the sender has revoked the message. Step completes it.
func (l *Link) Accept(t *Transfer, token, addr uint64, buf []byte) bool {
	d, gen := l.announced(token)
	if d.state.Load() != descState(gen, descAnnounced) {
		return false // own may be in use for the next message
	}
	own := &l.mine[token&0xff]
	own.dst.Store(shmem.Addr(buf))
	own.n.Store(uint64(len(buf)))
	t.Sender = d.op.Load()
	if !d.state.CompareAndSwap(descState(gen, descAnnounced), descState(gen, descTaken)) {
		return false
	}
	t.desc, t.gen, t.addr, t.buf, t.n = d, gen, addr, buf, len(buf)
	t.chunks, t.unread, t.end = chunkCount(t.n), false, nil
	t.begun = time.Time{}
	if l.cfg.Spare && t.n >= timedMin {
		t.begun = l.pace.now()
	}
	l.takes = append(l.takes, t)
	if t.n > 0 {
		l.Ring() // it may help
	}
	return true
}

// Stop ends a receive with err as soon as the sender no longer writes to its buffer.
func (l *Link) Stop(t *Transfer, err error) {
	if t.end != nil && t.end != ErrRefused {
		return
	}
	t.end = err
	if t.chunks > 0 {
		t.chunks = t.desc.claimed.fill(t.gen, t.chunks)
	}
}

// ErrRefused is the error of a receive whose message cannot be copied from process to process. The receiver asks
// Transfer.Sender for it.
var ErrRefused = errors.New("the kernel does not copy this memory")

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
func (l *Link) Busy() bool { return len(l.takes) > 0 || len(l.spare) < descs }

// Step copies one chunk of every transfer in progress, and reports whether anything moved. An error means
// that the peer does not keep to the protocol.
func (l *Link) Step(c Completer) (moved bool, err error) {
	for i := 0; i < len(l.takes); {
		t := l.takes[i]
		if l.take(c, t, &moved) {
			l.takes = slices.Delete(l.takes, i, i+1)
			end := t.end
			t.desc, t.buf = nil, nil
			c.Received(t, end)
			continue
		}
		i++
	}
	for i, left := 0, descs-len(l.spare); i < descs && left > 0 && err == nil; i++ {
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
func (l *Link) take(c Completer, t *Transfer, moved *bool) (ended bool) {
	taken := descState(t.gen, descTaken)
	if t.desc.state.Load() != taken { // withdrawn: the sender no longer writes
		if t.end == nil || t.end == ErrRefused {
			t.end = c.Withdrawn(t)
		}
		*moved = *moved || t.end != nil
		return t.end != nil
	}
	if t.chunks > 0 {
		if i, ok := t.desc.claimed.next(t.gen, t.chunks); ok {
			*moved = true
			lo, hi := chunk(t.n, i)
			word.Writes(t.buf[lo:hi]) // what is read counts if the sender has not withdrawn the message until the end
			err := l.cfg.Peer.Read(t.addr+uint64(lo), t.buf[lo:hi])
			t.desc.copied.next(t.gen, t.chunks) // if it failed, no one else copies this chunk
			if err != nil && t.desc.state.Load() == taken {
				if !shmem.Gone(err) {
					l.Stop(t, ErrRefused)
					return false
				}
				l.Ended(nil)
				t.chunks, t.unread = t.desc.claimed.fill(t.gen, t.chunks), true
				t.end = c.Withdrawn(t)
				return false
			}
		}
		v := t.desc.copied.Load()
		if v>>32 == t.gen && uint32(v) < t.chunks && !l.dead() {
			return false
		}
		if uint32(v) == notCopied {
			l.Stop(t, ErrRefused)
		}
		if l.dead() && t.end == nil && (t.unread || uint32(t.desc.copied.Load()) < chunkCount(t.n)) {
			return false // the loss of the peer stops it
		}
	}
	*moved = true
	last := descFinished
	if t.end == ErrRefused {
		last = descRefused
	}
	if !t.desc.state.CompareAndSwap(taken, descState(t.gen, last)) {
		return false
	}
	l.Ring()
	if !t.begun.IsZero() && t.end == nil {
		l.pace.copied(t.n, l.pace.now().Sub(t.begun))
	}
	return true
}

// help copies a part of a message that the receiver has taken.
func (l *Link) help(t *Transfer) (bool, error) {
	theirs := &l.theirs[t.idx]
	n := theirs.n.Load()
	if n > uint64(len(t.buf)) {
		return true, fmt.Errorf("the rank takes %d bytes of a message of %d", n, len(t.buf))
	}
	chunks := chunkCount(int(n))
	i, ok := t.desc.claimed.next(t.gen, chunks)
	if !ok {
		return false, nil
	}
	lo, hi := chunk(int(n), i)
	to := theirs.dst.Load() + uint64(lo)
	word.Reads(t.buf[lo:hi])
	word.WritesAt(to, hi-lo)
	if err := l.cfg.Peer.Write(to, t.buf[lo:hi]); shmem.Gone(err) {
		l.Ended(nil)
		return true, nil
	} else if err != nil {
		t.desc.claimed.fill(t.gen, chunks) // this rank copies no more
		t.desc.copied.fill(t.gen, notCopied)
	} else {
		t.desc.copied.next(t.gen, chunks)
	}
	if uint32(t.desc.claimed.Load()) >= chunks { // no chunk is left: the receiver may be waiting for this one
		l.Ring()
	}
	return true, nil
}

// Fence kills the peer's process if it has claimed a part of a buffer here and not written it, because it
// was stopped just then. The caller has waited after Stop for longer than a copy takes, and calls Fence until no
// receive is in progress.
func (l *Link) Fence() {
	switch {
	case len(l.takes) == 0 || l.dead() || l.cfg.Kill == nil:
	case shmem.Gone(l.cfg.Peer.Check()):
		l.Ended(nil)
	default:
		l.cfg.Kill()
	}
}

// Abandon ends all receives in progress at once, with an error. Buffers that the peer may still write to are kept from
// being used again.
func (l *Link) Abandon(c Completer) {
	kept.Lock()
	defer kept.Unlock()
	for _, t := range l.takes {
		kept.bufs = append(kept.bufs, t.buf)
		end := cmp.Or(t.end, c.Withdrawn(t), errAbandoned)
		t.desc, t.buf = nil, nil
		c.Received(t, end)
	}
	l.takes = nil
}

var errAbandoned error = &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "the sender of the message stopped in the middle of it"}

// kept holds buffers that a peer may still write to. The process keeps them as long as it runs, though
// their owners forget them.
var kept struct {
	sync.Mutex
	bufs [][]byte
}
