//go:build interleave

package local

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
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
	for i, mode := range []backend.Mode{backend.Standard, backend.Synchronous, backend.Standard, backend.Synchronous} {
		preemptions, rings := 2, i >= 2
		if rings {
			preemptions = interleave.Long(2)
		}
		explore(t, 2, preemptions, func(e *explored) {
			if rings {
				e.rings()
			}
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

// Two goroutines of a rank receive, one of which may linger in the cell, while one of another rank sends to both, and a
// third one of the rank locks the queues. Each message goes to its receive.
func TestInterleaveCell(t *testing.T) {
	explore(t, 2, interleave.Long(3), func(e *explored) {
		e.comms[0].group.job.spins = spins
		e.x.Name(&e.comms[0].me.cell.word, "cell")
		e.x.Name(&e.comms[1].me.cell.word, "cell of rank 1")
		for tag := 3; tag <= 4; tag++ {
			e.x.Go(fmt.Sprint("receives ", tag), func() {
				buf := make([]byte, 20) // longer than what a cell holds itself
				_, err := e.comms[0].Recv(nil, buf, 1, tag)
				if word.Writes(buf); err != nil || buf[0] != byte(tag) || buf[19] != byte(tag) {
					e.x.Errorf("tag %d: received %d and %d, %v", tag, buf[0], buf[19], err)
				}
			})
		}
		e.x.Go("sends", func() {
			for tag := 4; tag >= 3; tag-- {
				msg := bytes.Repeat([]byte{byte(tag)}, 20)
				e.is("send", e.comms[1].Send(nil, msg, 0, tag, backend.Standard), nil)
				word.Writes(msg)
			}
		})
		e.x.Go("probes", func() {
			_, _, err := e.comms[0].Probe(nil, 1, 5, false)
			e.is("probe", err, nil)
		})
	})
}

// Two messages, the first of which may be too long for the cell, go to two receives in order. The second receive may linger
// in the cell, and the first one too, or is posted.
func TestInterleaveCellKeepsOrder(t *testing.T) {
	for _, length := range []int{1, cellMax + 1} {
		for _, posted := range []bool{false, true} {
			explore(t, 2, 3, func(e *explored) {
				e.comms[0].group.job.spins = spins
				e.x.Name(&e.comms[0].me.cell.word, "cell")
				e.x.Go("receives", func() {
					c, buf, anyTag := e.comms[0], make([]byte, 1), backend.AnyTag
					var first *backend.Request
					if posted {
						first = start(func(r *backend.Request) { c.Irecv(r, buf, backend.AnySource, anyTag) })
					} else if st, _ := c.Recv(nil, buf, backend.AnySource, anyTag); st.Tag != 0 {
						e.x.Errorf("the first receive got tag %d", st.Tag)
					}
					if st, err := c.Recv(nil, buf, backend.AnySource, anyTag); err != nil || st.Tag != 1 {
						e.x.Errorf("the second receive got tag %d, %v", st.Tag, err)
					}
					if posted && (!first.Ready() || first.Status.Tag != 0) {
						e.x.Errorf("the first receive, which was posted, got tag %d", first.Status.Tag)
					}
				})
				e.x.Go("sends", func() {
					for tag, length := range []int{length, 1} {
						r := start(func(r *backend.Request) { e.comms[1].Isend(r, make([]byte, length), 0, tag, backend.Standard) })
						if !r.Ready() {
							e.x.Go(fmt.Sprint("awaits ", tag), func() { e.is("send", e.comms[1].Await(nil, r), nil) })
						}
					}
				})
			})
		}
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

// A receive whose long message is being copied at its deadline ends with the message, or breaks the communicator. A short
// message is copied in the step in which it matches: its receive is withdrawn, or ends with the message.
func TestInterleaveDeadlineOfCopy(t *testing.T) {
	defer func(was time.Duration) { grace = was }(grace)
	grace = 1 // it is over at once
	for _, length := range []int{1, shortMax + 1} {
		explore(t, 2, 2, func(e *explored) {
			b, buf := e.ends(0), make([]byte, length)
			e.rank(1, func() error { return e.comms[1].Send(nil, make([]byte, length), 0, 3, backend.Synchronous) })
			e.rank(0, func() error {
				_, err := e.comms[0].Recv(b, buf, 1, 3)
				if err != nil && e.comms[0].Broken() == nil { // it is withdrawn
					_, err = e.comms[0].Recv(nil, buf, 1, 3)
					e.is("the next receive", err, nil)
				}
				return err
			})
			e.x.Check(func() error {
				broken := e.comms[0].Broken()
				if (e.errs[0] == nil) != (broken == nil) || broken != nil && length <= shortMax {
					return fmt.Errorf("the receive ends with %v, the communicator was broken with %v", e.errs[0], broken)
				}
				return nil
			})
		})
	}
}

// A goroutine gives up a request that another one cancels, matches, or ends with its communicator. It finds the request
// complete, and so has no reason to break the communicator. A request that has not matched is in its queue, or complete.
func TestInterleaveGiveUpBesideOtherEnds(t *testing.T) {
	receives := func(c *Comm) *backend.Request {
		return start(func(r *backend.Request) { c.Irecv(r, make([]byte, 1), 1-c.rank, 3) })
	}
	sends := func(c *Comm) *backend.Request {
		return start(func(r *backend.Request) { c.Isend(r, []byte{7}, 1-c.rank, 3, backend.Synchronous) })
	}
	for i, begin := range []func(c *Comm) *backend.Request{receives, sends} {
		other := []func(c *Comm) *backend.Request{sends, receives}[i]
		for name, end := range map[string]func(mine, peer *Comm, r *backend.Request){
			"canceled": func(mine, _ *Comm, r *backend.Request) { mine.Cancel(r) },
			"matched":  func(_, peer *Comm, _ *backend.Request) { peer.Cancel(other(peer)) },
			"closed":   func(_, peer *Comm, _ *backend.Request) { _ = peer.Close() },
			"broken":   func(_, peer *Comm, _ *backend.Request) { peer.Break(backend.Faultf(backend.ErrOp, "broken")) },
		} {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				explore(t, 2, 3, func(e *explored) {
					r := begin(e.comms[0])
					e.x.Go("ends it", func() { end(e.comms[0], e.comms[1], r) })
					e.x.Go("gives it up", func() {
						if e.comms[0].Cancel(r); !r.Ready() {
							e.x.Errorf("it is given up, and not complete")
						}
					})
					if o := r.Impl.(*op); name != "matched" {
						e.x.Go("looks", func() {
							o.at.mu.Lock()
							defer o.at.mu.Unlock()
							if o.at.posted.Len()+o.at.arrived.Len() == 0 && !r.Ready() {
								e.x.Errorf("it is in no queue, and not complete")
							}
						})
					}
				})
			})
		}
	}
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
	explore(t, 2, interleave.Long(2), func(e *explored) {
		e.rings()
		c := e.comms[0]
		e.x.Go("receives", func() {
			_, err := c.Recv(nil, nil, 1, 3)
			e.is("receive", err, nil)
		})
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
