//go:build interleave

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// withdrawal is how the sender of a message cancels it.
type withdrawal struct {
	way
	givesUp bool // it does not wait for the receiver's answer
}

var withdrawals = []withdrawal{{way: ways[0]}, {way: ways[1]}, {way{"given up", 40, false}, true}}

func (w withdrawal) cancel(c *comm, q *backend.Request) {
	c.Cancel(q)
	if w.givesUp {
		c.GiveUp(q, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "given up"})
	}
}

// A send that nobody receives ends when it is canceled, though the receiver only makes progress.
func TestInterleaveCancelWithoutReceive(t *testing.T) {
	for _, way := range withdrawals {
		t.Run(way.name, func(t *testing.T) {
			exploreEngines(t, way.copies, interleave.Config{}, func(x *interleave.Run, a, b *comm) {
				var over word.Bool
				x.Go("sender", func() {
					q := way.send(a, 1, 1)
					way.cancel(a, q)
					if err := finished(a, q); !errors.Is(err, backend.ErrCanceled) {
						x.Errorf("the send ends with %v", err)
					}
					over.Store(true)
				})
				x.Go("receiver", func() { pollUntil(b, over.Load) })
			})
		})
	}
}

// A send is canceled while the receiver takes its message with Mprobe and receives it: either both end well, or both
// are canceled.
func TestInterleaveCancelAgainstMprobe(t *testing.T) {
	for _, way := range withdrawals {
		t.Run(way.name, func(t *testing.T) {
			exploreEngines(t, way.copies, interleave.Config{}, func(x *interleave.Run, a, b *comm) {
				var canceled word.Bool
				var q, r *backend.Request
				buf := make([]byte, way.n)
				x.Go("sender", func() {
					q = way.send(a, 1, 1)
					way.cancel(a, q)
					canceled.Store(finished(a, q) != nil)
				})
				x.Go("receiver", func() {
					for {
						none := canceled.Load()
						m, _, found, err := b.Mprobe(nil, 0, 1, false)
						if err != nil {
							x.Errorf("Mprobe: %v", err)
						}
						if found {
							b.Poll() // what the sender does meanwhile may arrive
							r = &backend.Request{}
							r.Begin()
							b.Imrecv(r, m, buf)
							finished(b, r)
							return
						}
						if none {
							return
						}
						if !b.e.poll() {
							word.Yield()
						}
					}
				})
				x.Check(func() error {
					switch {
					case canceled.Load() != errors.Is(q.Err, backend.ErrCanceled):
						return fmt.Errorf("the send was canceled: %v; it ends with %v", canceled.Load(), q.Err)
					case r != nil && !canceled.Load() && (r.Err != nil || !bytes.Equal(buf, numbered(way.n, 1))):
						return fmt.Errorf("the receive ends with %v", r.Err)
					case r != nil && canceled.Load() && !errors.Is(r.Err, backend.ErrCanceled):
						return fmt.Errorf("the receive of a canceled message ends with %v", r.Err)
					}
					return nil
				})
			})
		})
	}
}

// A send is canceled while its message meets a posted receive: that gets the message, or the next one.
func TestInterleaveCancelAgainstReceive(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			exploreEngines(t, way.copies, interleave.Config{}, func(x *interleave.Run, a, b *comm) {
				var canceled bool
				var got []byte
				x.Go("sender", func() {
					q := way.send(a, 1, 1)
					a.Cancel(q)
					next := way.send(a, 2, 1)
					canceled = finished(a, q) != nil
					if err := finished(a, next); err != nil {
						x.Errorf("the second send: %v", err)
					}
				})
				x.Go("receiver", func() {
					b.Poll() // the message may arrive before the receive
					for len(got) == 0 || got[len(got)-1] != 2 {
						buf := make([]byte, way.n)
						if err := finished(b, receiving(b, buf, 0)); err != nil || !bytes.Equal(buf, numbered(way.n, int(buf[0]))) {
							x.Errorf("the receive: %v, % x", err, buf)
						}
						got = append(got, buf[0])
					}
				})
				x.Check(func() error {
					if canceled != (len(got) == 1) {
						return fmt.Errorf("the first message was canceled: %v; messages %v were received", canceled, got)
					}
					return nil
				})
			})
		})
	}
}

// Both ends are canceled while they meet: both end well, or both are canceled.
func TestInterleaveCancelOfBothEnds(t *testing.T) {
	for _, way := range withdrawals {
		t.Run(way.name, func(t *testing.T) {
			exploreEngines(t, way.copies, interleave.Config{}, func(x *interleave.Run, a, b *comm) {
				var over word.Bool
				var q, r *backend.Request
				x.Go("sender", func() {
					q = way.send(a, 1, 1)
					way.cancel(a, q)
					finished(a, q)
					over.Store(true)
				})
				x.Go("receiver", func() {
					r = receiving(b, make([]byte, way.n), 0)
					b.Poll() // it may match
					b.Cancel(r)
					finished(b, r)
					pollUntil(b, over.Load) // it answers the sender
				})
				x.Check(func() error {
					for _, err := range []error{q.Err, r.Err} {
						if (q.Err == nil) != (r.Err == nil) || err != nil && !errors.Is(err, backend.ErrCanceled) {
							return fmt.Errorf("the send ends with %v, the receive with %v", q.Err, r.Err)
						}
					}
					return nil
				})
			})
		})
	}
}
