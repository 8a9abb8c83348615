//go:build interleave

package local

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// A message is received, or its deadline, its cancel, or the end of its sender ends the operation; never both.
func TestInterleaveMessages(t *testing.T) {
	send := func(e *explored, b *backend.Bound, mode backend.Mode) error {
		msg := []byte{7}
		word.Writes(msg)
		err := e.comms[1].Send(b, msg, 0, 3, mode)
		word.Writes(msg)
		return err
	}
	recv := func(e *explored, b *backend.Bound) error {
		buf := make([]byte, 1)
		_, err := e.comms[0].Recv(b, buf, backend.AnySource, 3)
		if word.Writes(buf); err == nil && buf[0] != 7 {
			e.x.Errorf("received %d", buf[0])
		}
		return err
	}
	for _, mode := range []backend.Mode{backend.Standard, backend.Synchronous} {
		explore(t, 2, 2, func(e *explored) {
			b := e.ends(0)
			e.x.Go("sends", func() {
				e.is("send", errors.Join(send(e, nil, backend.Standard), send(e, nil, mode), e.comms[1].Close()), nil, backend.ErrPeerLost)
			})
			e.x.Go("receives", func() {
				e.is("first", recv(e, b), nil, backend.ErrCanceled)
				e.is("second", recv(e, nil), nil, backend.ErrPeerLost)
				e.is("close", e.comms[0].Close(), nil)
			})
		})
	}
}

// A blocking or nonblocking send is withdrawn while the receiver takes its message with Mprobe and receives it: either both
// end well, or both are canceled.
func TestInterleaveWithdrawAgainstMprobe(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		explore(t, 2, 3, func(e *explored) {
			sender, receiver := e.comms[1], e.comms[0]
			if blocking {
				b := e.ends(1)
				e.rank(1, func() error { return sender.Send(b, nil, 0, 3, backend.Synchronous) })
			} else {
				e.rank(1, func() error {
					r := start(func(r *backend.Request) { sender.Isend(r, nil, 0, 3, backend.Synchronous) })
					if canceled := sender.Cancel(r); canceled != errors.Is(r.Err, backend.ErrCanceled) {
						e.x.Errorf("Cancel returns %v, and the send ends with %v", canceled, r.Err)
					}
					e.is("await", sender.Await(nil, r), nil)
					return r.Err
				})
			}
			e.rank(0, func() error {
				m, _, ok, err := receiver.Mprobe(nil, 1, 3, false)
				if !ok {
					e.is("probe", err, nil)
					e.is("close", receiver.Close(), nil)
					return backend.ErrPeerLost
				}
				r := start(func(r *backend.Request) { receiver.Imrecv(r, m, nil) })
				e.is("await", receiver.Await(nil, r), nil)
				e.is("receive", r.Err, nil, backend.ErrCanceled)
				return r.Err
			})
			e.x.Check(func() error {
				if received, sent := e.errs[0], e.errs[1]; received != backend.ErrPeerLost && (received == nil) != (sent == nil) {
					return fmt.Errorf("the receive ends with %v, the send with %v", received, sent)
				}
				return nil
			})
		})
	}
}

// A receive whose message is being copied at its deadline ends with the message, or breaks the communicator.
func TestInterleaveDeadlineOfCopy(t *testing.T) {
	defer func(was time.Duration) { grace = was }(grace)
	grace = 1 // it is over at once
	explore(t, 2, 2, func(e *explored) {
		b := e.ends(0)
		e.rank(1, func() error { return e.comms[1].Send(nil, nil, 0, 3, backend.Synchronous) })
		e.rank(0, func() error {
			_, err := e.comms[0].Recv(b, nil, 1, 3)
			if err != nil && e.comms[0].Broken() == nil { // it is withdrawn
				_, err = e.comms[0].Recv(nil, nil, 1, 3)
				e.is("the next receive", err, nil)
			}
			return err
		})
		e.x.Check(func() error {
			if broken := e.comms[0].Broken(); (e.errs[0] == nil) != (broken == nil) {
				return fmt.Errorf("the receive ends with %v, the communicator was broken with %v", e.errs[0], broken)
			}
			return nil
		})
	})
}

// The end of a communicator ends a message, wherever it is.
func TestInterleaveEndOfMessage(t *testing.T) {
	explore(t, 2, 2, func(e *explored) {
		e.x.Go("sends", func() {
			e.is("send", e.comms[1].Send(nil, nil, 0, 3, backend.Synchronous), nil, backend.ErrBroken)
		})
		e.x.Go("receives", func() {
			if _, _, ok, _ := e.comms[0].Mprobe(nil, 1, 3, false); !ok {
				_, err := e.comms[0].Recv(nil, nil, 1, 3)
				e.is("receive", err, nil, backend.ErrBroken)
			}
		})
		e.x.Go("breaks", func() { e.comms[0].Break(backend.Faultf(backend.ErrCanceled, "broken")) })
	})
}

// A send is canceled while its receiver leaves. Cancel may read the request's record until the request has completed, so
// that does not change.
func TestInterleaveCancelBesideClose(t *testing.T) {
	for _, probed := range []bool{false, true} {
		explore(t, 2, 3, func(e *explored) {
			r := start(func(r *backend.Request) { e.comms[0].Isend(r, nil, 1, 3, backend.Synchronous) })
			if probed {
				_, _, _, err := e.comms[1].Mprobe(nil, 0, 3, false)
				e.is("probe", err, nil)
			}
			record := r.Impl
			e.x.Go("cancels", func() {
				if e.comms[0].Cancel(r) {
					e.is("cancel", r.Err, backend.ErrCanceled)
				}
				e.is("await", e.comms[0].Await(nil, r), nil)
			})
			e.x.Go("closes", func() { e.is("close", e.comms[1].Close(), nil) })
			e.x.Check(func() error {
				if r.Impl != record || !is(r.Err, []error{backend.ErrCanceled, backend.ErrPeerLost}) {
					return fmt.Errorf("the send ends with %v; its record is the same: %v", r.Err, r.Impl == record)
				}
				return nil
			})
		})
	}
}

// Goroutines of a rank wait for requests, for a message, and for what another goroutine makes ready before it calls Wake.
func TestInterleaveWaiters(t *testing.T) {
	explore(t, 2, 2, func(e *explored) {
		c := e.comms[0]
		r := start(func(r *backend.Request) { c.Irecv(r, nil, 1, 3) })
		e.x.Go("waits", func() { e.is("await", c.Await(nil, r), nil) })
		e.x.Go("probes", func() {
			_, _, err := c.Probe(nil, 1, 4, true)
			e.is("probe", err, nil)
		})
		e.x.Go("sends", func() {
			e.is("send", e.comms[1].Send(nil, nil, 0, 4, backend.Standard), nil)
			e.is("send", e.comms[1].Send(nil, nil, 0, 3, backend.Standard), nil)
		})
	})
	explore(t, 1, 3, func(e *explored) {
		c, p := e.comms[0], new(flag)
		e.x.Go("waits", func() { e.is("await", c.Await(nil, p), nil) })
		e.x.Go("makes ready", func() {
			p.Store(true)
			c.Wake()
		})
	})
}

type flag struct{ word.Bool }

func (f *flag) Ready() bool { return f.Load() }
