package cohort

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/view"
)

// A receive that is out of time names the message that has come instead.
func TestReceiveOutOfTimeNamesWhatHasArrived(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		s, err := Isend(w, []int{1}, 0, 7)
		if err != nil {
			return err
		}
		ctx, cancel := expiredContext()
		defer cancel()
		c, buf := w.WithContext(ctx), make([]int, 1)
		for name, recv := range map[string]func() error{
			"recv": func() error { return second(Recv(c, buf, 0, 1)) },
			"irecv": func() error {
				q, err := Irecv(c, buf, 0, 1)
				if err == nil {
					_, err = q.Wait()
				}
				return err
			},
			"recvinit": func() error {
				p, err := RecvInit(c, buf, 0, 1)
				if err == nil {
					err = p.Start()
				}
				if err == nil {
					_, err = p.Wait()
				}
				return err
			},
			"sendrecv": func() error { return second(Sendrecv(c, nil, ProcNull, 0, buf, 0, 1)) },
			"isendrecv": func() error {
				q, err := Isendrecv(c, nil, ProcNull, 0, buf, 0, 1)
				if err == nil {
					_, err = q.Wait()
				}
				return err
			},
		} {
			if err := recv(); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "one from rank 0 with tag 7 has arrived") {
				t.Errorf("%s: %v; want ErrTimeout naming the message with tag 7", name, err)
			}
		}
		_, err = Recv(w, buf, 0, 7)
		_, err2 := s.Wait()
		return errors.Join(err, err2)
	})
}

// The sender cancels a message that RecvAppend has found and not received yet. RecvAppend receives the next.
func TestRecvAppendGoesOnBehindCanceledMessage(t *testing.T) {
	found, canceled := make(chan bool), make(chan bool)
	ranks(t, 2, func(w *Comm) error {
		if w.Rank() == 0 {
			q, err := Issend(w, []int32{1, 2, 3}, 1, 0)
			if err != nil {
				return err
			}
			<-found
			q.Cancel()
			close(canceled)
			_, err = q.Wait()
			return errors.Join(wantErr("the canceled send", err, ErrCanceled), Send(w, []int32{5}, 1, 0))
		}
		typ, err := typeFor[int32]()
		var got []int32
		_, err = w.base().RecvAppend(typ, 0, 0, err, func(n int) []byte {
			if n == 3 {
				close(found)
				<-canceled
			}
			got = make([]int32, n)
			return view.Bytes(got)
		})
		if err != nil || len(got) != 1 || got[0] != 5 {
			return fmt.Errorf("received %v, %w", got, err)
		}
		return nil
	})
}

func TestPointToPointMakesNoAllocations(t *testing.T) {
	for _, limited := range []bool{false, true} {
		for _, n := range []int{16, 5000} {
			ranks(t, 2, func(w *Comm) error {
				if limited {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					w = w.WithContext(ctx)
				}
				x, y := make([]float64, n), make([]float64, n)
				peer := 1 - w.Rank()
				what := fmt.Sprintf("Sendrecv, Send, Ssend, Recv and RecvAppend of %d elements, limited %v", n, limited)
				allocates(t, w, 0, what, func() error {
					_, err := Sendrecv(w, x, peer, 0, y, peer, 0)
					for from := 0; err == nil && from < 2; from++ {
						switch {
						case w.Rank() != from:
							_, err = Recv(w, y, from, 1)
						case from == 0:
							err = Send(w, x, peer, 1)
						default:
							err = Ssend(w, x, peer, 1)
						}
					}
					if err == nil && n < 1000 { // the ranks send at once
						if err = Send(w, x, peer, 2); err == nil {
							_, _, err = RecvAppend(w, y[:0], peer, 2)
						}
					}
					return err
				})
				return nil
			})
		}
	}
}

// halfway is a local backend on which messages of tag 1 arrive in part. Messages of tag 2 find no receiver until the
// deadline, and those of tag 4 find that it has left.
type halfway struct{ backend.Comm }

func (h halfway) Irecv(r *backend.Request, buf []byte, source, tag int) {
	if tag != 1 {
		h.Comm.Irecv(r, buf, source, tag)
	}
}

func (h halfway) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	switch tag {
	case 2:
		for b.Err(time.Time{}) == nil {
			h.Poll()
		}
		return b.Err(time.Time{})
	case 4:
		return backend.PeerLeft("rank %d has left", dest)
	}
	return h.Comm.Send(b, buf, dest, tag, mode)
}

// Await lets the rest of a message arrive only if the wait has no limit.
func (h halfway) Await(b *backend.Bound, p backend.Pending) error {
	if q, ok := p.(*backend.Request); ok && q.Active() && !b.Limited() {
		q.Complete(backend.Status{Source: 1, Tag: 1}, nil)
	}
	return h.Comm.Await(b, p)
}

// A message that is arriving cannot be withdrawn at the deadline of its Sendrecv. The communicator is then broken, so
// that the rest of the message does not come to memory that is used again.
func TestSendrecvDoesNotLeaveReceiveUnderWay(t *testing.T) {
	onWorlds(t, 2, settings{}, func(bc backend.Comm) backend.Comm { return halfway{bc} }, func(c *Comm) error {
		if c.Rank() == 1 {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if _, err := Sendrecv(c.WithContext(ctx), []int{1}, 1, 2, make([]int, 1), 1, 1); !errors.Is(err, ErrTimeout) {
			return fmt.Errorf("Sendrecv returns %v, want %v", err, ErrTimeout)
		}
		return wantErr("Send after it", Send(c, []int{1}, 1, 3), ErrBroken)
	})
}

// A Sendrecv whose destination has left waits for a message that is arriving, and the communicator stays usable.
func TestSendrecvWhoseSendFailsLetsMessageArrive(t *testing.T) {
	onWorlds(t, 2, settings{}, func(bc backend.Comm) backend.Comm { return halfway{bc} }, func(c *Comm) error {
		if c.Rank() == 1 {
			return nil
		}
		if _, err := Sendrecv(c, []int{1}, 1, 4, make([]int, 1), 1, 1); !errors.Is(err, ErrPeerLost) {
			return fmt.Errorf("Sendrecv returns %v, want %v", err, ErrPeerLost)
		}
		return Send(c, []int{1}, 0, 3)
	})
}

// Close ends a send whose message Mprobe has taken. The receiver cannot receive the message any more.
func TestCloseEndsSendOfMatchedMessage(t *testing.T) {
	for to := range 2 {
		ranks(t, 2, func(w *Comm) error {
			d, err := w.Dup()
			if err != nil {
				return err
			}
			result := make(chan error, 1)
			if w.Rank() == 0 {
				go func() { result <- Ssend(d, make([]byte, 100_000), to, 0) }()
			}
			var m *Message
			if w.Rank() == to {
				if m, _, err = d.Mprobe(0, 0); err != nil {
					return err
				}
			}
			must.OK(w.Barrier())
			if w.Rank() == 0 {
				must.OK(d.Close())
				if err := <-result; !errors.Is(err, ErrClosed) {
					return fmt.Errorf("the send to rank %d: %v", to, err)
				}
			}
			must.OK(w.Barrier())
			if w.Rank() == to {
				if _, err := MessageRecv(m, make([]byte, 100_000)); err == nil {
					return errors.New("the message of a rank that has closed the communicator was received")
				}
			}
			return nil
		})
	}
}
