//go:build interleave

package local

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// rings gives each rank a ring, as where every rank has a processor.
func (e *explored) rings() {
	for i, c := range e.comms {
		q := new(ring)
		c.me.ring, c.me.job.spins = q, spins
		e.x.Name(&c.me.cell.word, "cell of rank %d", i)
		e.x.Name(&q.tail, "tail of the ring of rank %d", i)
		e.x.Name(&q.taken, "taken of the ring of rank %d", i)
		e.x.Name(&q.asleep, "asleep of rank %d", i)
	}
}

// A rank sends a message that fits into the ring, and then one that may not. The receives are posted, linger, or come later.
// Each gets its message, although the ring may be full, or another rank may have claimed an entry that is not complete.
func TestInterleaveRing(t *testing.T) {
	for _, x := range []struct {
		posted         bool
		before, length int
		another        bool
	}{
		{posted: false, length: 1},
		{posted: true, length: 1},
		{posted: true, length: 1, before: ringEntries - 1},
		{posted: true, length: len(entry{}.data) + 1, another: true},
	} {
		explore(t, 3, interleave.Long(2), func(e *explored) {
			e.rings()
			for range x.before {
				e.is("send", e.comms[2].Send(nil, nil, 0, 9, backend.Standard), nil)
			}
			e.x.Go("receives", func() {
				c, bufs := e.comms[0], [2][]byte{make([]byte, x.length), make([]byte, x.length)}
				var first *backend.Request
				if x.posted {
					first = start(func(r *backend.Request) { c.Irecv(r, bufs[0], 1, backend.AnyTag) })
				} else {
					_, err := c.Recv(nil, bufs[0], 1, backend.AnyTag)
					e.is("receive", err, nil)
				}
				_, err := c.Recv(nil, bufs[1], 1, backend.AnyTag)
				e.is("receive", err, nil)
				if x.posted {
					e.is("await", errors.Join(c.Await(nil, first), first.Err), nil)
				}
				for i, buf := range bufs {
					if word.Writes(buf); buf[0] != byte(i) {
						e.x.Errorf("receive %d got message %d", i, buf[0])
					}
				}
			})
			e.x.Go("sends", func() {
				for i, n := range []int{1, x.length} {
					msg := make([]byte, n)
					msg[0] = byte(i)
					word.Writes(msg)
					e.is("send", e.comms[1].Send(nil, msg, 0, 3, backend.Standard), nil)
					word.Writes(msg)
				}
			})
			if x.another {
				e.x.Go("another sends", func() { e.is("send", e.comms[2].Send(nil, nil, 0, 8, backend.Standard), nil) })
			}
		})
	}
}

// A receive with a Notify completes though its rank does nothing afterwards.
func TestInterleaveRingBesideNotify(t *testing.T) {
	explore(t, 2, 3, func(e *explored) {
		e.rings()
		var notified word.Bool
		e.x.Go("receives", func() {
			r := &backend.Request{Notify: func(*backend.Request) { notified.Store(true) }}
			r.Begin()
			e.comms[0].Irecv(r, nil, 1, backend.AnyTag)
		})
		e.x.Go("sends", func() { e.is("send", e.comms[1].Send(nil, nil, 0, 3, backend.Standard), nil) })
		e.x.Check(func() error {
			if !notified.Load() {
				return errors.New("Notify was not called")
			}
			return nil
		})
	})
}

// A message that its sender leaves while the communicator ends is not kept.
func TestInterleaveRingBesideEnd(t *testing.T) {
	for _, closes := range []bool{false, true} {
		explore(t, 2, 3, func(e *explored) {
			e.rings()
			c := e.comms[0]
			e.x.Go("sends", func() {
				e.is("send", e.comms[1].Send(nil, nil, 0, 3, backend.Standard), nil, backend.ErrPeerLost, backend.ErrBroken)
			})
			e.x.Go("ends", func() {
				if closes {
					e.is("close", c.Close(), nil)
				} else {
					c.Break(backend.Faultf(backend.ErrOp, "broken"))
				}
			})
			e.x.Check(func() error {
				c.me.lock()
				defer c.me.mu.Unlock()
				if n := c.me.arrived.Len(); n > 0 {
					return fmt.Errorf("%d messages are kept", n)
				}
				return nil
			})
		})
	}
}
