package cohort

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
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
			"recv": func() error { _, err := Recv(c, buf, 0, 1); return err },
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
			"sendrecv": func() error { _, err := Sendrecv(c, nil, ProcNull, 0, buf, 0, 1); return err },
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

// Wrong arguments are found before anything is sent. The error has the sentinel and the operation.
func TestPointToPointRejectsWrongArguments(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		buf, pair := []int{1}, []int{1, 2}
		big := math.MaxInt
		for _, c := range []struct {
			op   string
			want error
			call func() error
		}{
			{"send", ErrRank, func() error { return Send(w, buf, 2, 0) }},
			{"send", ErrRank, func() error { return Send(w, buf, -5, 0) }},
			{"send", ErrRank, func() error { return Send(w, buf, AnySource, 0) }},
			{"send", ErrTag, func() error { return Send(w, buf, 0, -2) }},
			{"send", ErrTag, func() error { return Send(w, buf, 0, AnyTag) }},
			{"send", ErrTag, func() error { return Send(w, buf, 0, big) }},
			{"send", ErrTag, func() error { return Send(w, buf, ProcNull, -2) }},
			{"send", ErrType, func() error { return Send(w, []string{"a"}, 0, 0) }},
			{"send", ErrComm, func() error { return Send(nil, buf, 0, 0) }},
			{"send", ErrComm, func() error { return Send(new(Comm), buf, 0, 0) }},
			{"ssend", ErrRank, func() error { return Ssend(w, buf, 2, 0) }},
			{"isend", ErrTag, func() error { _, err := Isend(w, buf, 0, -2); return err }},
			{"issend", ErrRank, func() error { _, err := Issend(w, buf, 9, 0); return err }},
			{"recv", ErrRank, func() error { _, err := Recv(w, buf, 2, 0); return err }},
			{"recv", ErrTag, func() error { _, err := Recv(w, buf, 0, -3); return err }},
			{"recv", ErrType, func() error { _, err := Recv(w, []*int{nil}, 0, 0); return err }},
			{"recv", ErrComm, func() error { _, err := Recv(nil, buf, 0, 0); return err }},
			{"irecv", ErrRank, func() error { _, err := Irecv(w, buf, 3, 0); return err }},
			{"recvappend", ErrType, func() error { _, _, err := RecvAppend[any](w, nil, 0, 0); return err }},
			{"recvappend", ErrRank, func() error { _, _, err := RecvAppend[int](w, nil, -7, 0); return err }},
			{"sendrecv", ErrRank, func() error { _, err := Sendrecv(w, buf, 2, 0, nil, 0, 0); return err }},
			{"sendrecv", ErrTag, func() error { _, err := Sendrecv(w, buf, 0, 0, nil, 0, -9); return err }},
			{"sendrecv", ErrBuffer, func() error { _, err := Sendrecv(w, pair[1:], 0, 0, pair, 0, 0); return err }},
			{"probe", ErrRank, func() error { _, err := w.Probe(2, 0); return err }},
			{"iprobe", ErrTag, func() error { _, _, err := w.Iprobe(0, -3); return err }},
			{"mprobe", ErrComm, func() error { _, _, err := (*Comm)(nil).Mprobe(0, 0); return err }},
			{"improbe", ErrRank, func() error { _, _, _, err := w.Improbe(5, 0); return err }},
			{"messagerecv", ErrRequest, func() error { _, err := MessageRecv[int](nil, nil); return err }},
			{"imessagerecv", ErrRequest, func() error { _, err := ImessageRecv[int](nil, nil); return err }},
			{"sendinit", ErrRank, func() error { _, err := SendInit(w, buf, 2, 0); return err }},
			{"ssendinit", ErrTag, func() error { _, err := SsendInit(w, buf, 0, -2); return err }},
			{"recvinit", ErrType, func() error { _, err := RecvInit(w, []string{}, 0, 0); return err }},
		} {
			err := c.call()
			if err := errors.Join(wantErr(c.op, err, c.want), isOp(err, c.op)); err != nil {
				t.Error(err)
			}
		}
		return w.Barrier()
	})
}

func TestProcNullCompletesAtOnce(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		buf := []int{7}
		null := func(what string, st Status, err error) {
			if err != nil || st.Source != ProcNull || st.Tag != AnyTag || st.Bytes() != 0 {
				t.Errorf("%s: %+v, %v", what, st, err)
			}
		}
		if err := Send(w, buf, ProcNull, 0); err != nil {
			t.Error(err)
		}
		st, err := Recv(w, buf, ProcNull, 3)
		null("recv", st, err)
		q, err := Irecv(w, buf, ProcNull, 0)
		if err != nil {
			return err
		}
		st, err = q.Wait()
		null("irecv", st, err)
		if q, err = Isend(w, buf, ProcNull, 0); err != nil {
			return err
		}
		if _, err = q.Wait(); err != nil {
			return err
		}
		st, err = Sendrecv(w, buf, ProcNull, 0, nil, ProcNull, 0)
		null("sendrecv", st, err)
		st, err = w.Probe(ProcNull, 0)
		null("probe", st, err)
		m, st, err := w.Mprobe(ProcNull, AnyTag)
		null("mprobe", st, err)
		st, err = MessageRecv(m, buf)
		null("messagerecv", st, err)
		got, st, err := RecvAppend[int](w, nil, ProcNull, 0)
		null("recvappend", st, err)
		p, err := RecvInit(w, buf, ProcNull, 0)
		if err != nil {
			return err
		}
		if err := p.Start(); err != nil {
			return err
		}
		st, err = p.Wait()
		null("recvinit", st, err)
		if buf[0] != 7 || got != nil {
			t.Errorf("something was received: %v %v", buf, got)
		}
		return nil
	})
}

func TestRankSendsToItself(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		me := w.Rank()
		got := make([]int, 3)
		st, err := Sendrecv(w, []int{1, 2, 3}, me, 4, got, me, 4)
		if err != nil || got[2] != 3 || st.Source != me || st.Tag != 4 || Count[int](st) != 3 {
			return fmt.Errorf("sendrecv with itself: %v, %+v, %w", got, st, err)
		}
		if err := Send(w, []byte("hello"), me, 5); err != nil {
			return err
		}
		text, _, err := RecvAppend[byte](w, nil, AnySource, AnyTag)
		if err != nil || string(text) != "hello" {
			return fmt.Errorf("got %q, %w", text, err)
		}
		return nil
	})
}

func TestRecvReportsTruncatedMessage(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		if w.Rank() == 0 {
			return errors.Join(Send(w, []int32{1, 2, 3}, 1, 0), Send(w, []int32{4}, 1, 0))
		}
		buf := []int32{-1, -1, -1}
		st, err := Recv(w, buf[:2], 0, 0)
		if err := wantErr("recv", err, ErrTruncate); err != nil {
			return err
		}
		if st.Source != 0 || st.Bytes() != 12 || buf[0] != 1 || buf[1] != 2 || buf[2] != -1 {
			t.Errorf("status %+v with %d bytes, buffer %v", st, st.Bytes(), buf)
		}
		_, err = Recv(w, buf, 0, 0)
		if err != nil || buf[0] != 4 {
			t.Errorf("the next message: %v, %v", buf, err)
		}
		return nil
	})
}

func TestRecvAppendRejectsPartOfElement(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		if w.Rank() == 0 {
			return errors.Join(Send(w, make([]byte, 7), 1, 0), Send(w, []int32{5}, 1, 0))
		}
		_, st, err := RecvAppend[int32](w, nil, 0, 0)
		if err := wantErr("7 bytes as int32", err, ErrCount); err != nil || st.Bytes() != 7 {
			return fmt.Errorf("%w, %d bytes", err, st.Bytes())
		}
		got, _, err := RecvAppend[int32](w, nil, 0, 0)
		if err != nil || len(got) != 1 || got[0] != 5 {
			return fmt.Errorf("the next message: %v, %w", got, err)
		}
		return nil
	})
}

// A deadline withdraws a receive. The communicator stays usable, and the next receive gets a
// message that is sent later.
func TestDeadlineWithdrawsReceive(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		if w.Rank() == 1 {
			if _, err := Recv(w, make([]int, 1), 0, 1); err != nil { // rank 0 has given up
				return err
			}
			return Send(w, []int{42}, 0, 0)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		h := w.WithContext(ctx)
		stale := []int{-1}
		_, err := Recv(h, stale, 1, 0)
		if err := errors.Join(wantErr("recv", err, ErrTimeout), isOp(err, "recv")); err != nil {
			return err
		}
		if !strings.Contains(err.Error(), "peer 1") {
			t.Errorf("%v does not name rank 1", err)
		}
		for what, f := range map[string]func() error{
			"irecv":    func() error { q, _ := Irecv(h, stale, 1, 0); _, err := q.Wait(); return err },
			"ssend":    func() error { return Ssend(h, stale, 1, 77) },
			"probe":    func() error { _, err := h.Probe(1, 0); return err },
			"mprobe":   func() error { _, _, err := h.Mprobe(1, 0); return err },
			"sendrecv": func() error { _, err := Sendrecv(h, nil, ProcNull, 0, stale, 1, 0); return err },
			"alloc":    func() error { _, _, err := RecvAppend[int](h, nil, 1, 0); return err },
		} {
			if err := wantErr(what, f(), ErrTimeout); err != nil {
				t.Error(err)
			}
		}
		if err := Send(w, []int{1}, 1, 1); err != nil {
			return err
		}
		got := []int{0}
		if _, err := Recv(w, got, 1, 0); err != nil || got[0] != 42 || stale[0] != -1 {
			return fmt.Errorf("got %v, stale buffer %v, %w", got, stale, err)
		}
		return nil
	})
}

func TestMprobeTakesMessageFromQueue(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		if w.Rank() == 0 {
			return errors.Join(Send(w, []int{1, 2}, 1, 5), Send(w, []int{3}, 1, 5), Send(w, []int{4}, 1, 6))
		}
		m, st, err := w.Mprobe(0, AnyTag)
		if err != nil || st.Tag != 5 || Count[int](st) != 2 {
			return fmt.Errorf("mprobe: %+v, %w", st, err)
		}
		next := make([]int, 2)
		if _, err := Recv(w, next, 0, 5); err != nil || next[0] != 3 {
			return fmt.Errorf("the message behind the one taken: %v, %w", next, err)
		}
		buf := make([]int, 2)
		if st, err = MessageRecv(m, buf); err != nil || buf[1] != 2 || st.Tag != 5 {
			return fmt.Errorf("messagerecv: %v, %+v, %w", buf, st, err)
		}
		_, err = MessageRecv(m, buf)
		if err := wantErr("receiving a message twice", err, ErrRequest); err != nil {
			return err
		}
		for {
			m, _, ok, err := w.Improbe(0, 6)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			q, err := ImessageRecv(m, buf[:0])
			if err != nil {
				return err
			}
			_, err = q.Wait()
			return wantErr("a message longer than the buffer", err, ErrTruncate)
		}
	})
}

func TestPointToPointMakesNoAllocations(t *testing.T) {
	const runs = 200
	ranks(t, 2, func(w *Comm) error {
		x, y := make([]float64, 16), make([]float64, 16)
		peer := 1 - w.Rank()
		exchange := func() {
			_, err := Sendrecv(w, x, peer, 0, y, peer, 0)
			if err == nil && w.Rank() == 0 {
				err = Send(w, x, 1, 1)
			}
			if err == nil {
				_, err = Recv(w, y, peer, 1)
			}
			if err == nil && w.Rank() == 1 {
				err = Send(w, x, 0, 1)
			}
			if err == nil {
				err = Send(w, x, peer, 2)
			}
			if err == nil {
				_, _, err = RecvAppend(w, y[:0], peer, 2)
			}
			if err != nil {
				t.Error(err)
			}
		}
		for range 50 { // the backend fills its pools
			exchange()
		}
		if w.Rank() == 1 {
			for range runs + 1 { // AllocsPerRun warms up once
				exchange()
			}
			return nil
		}
		if n := testing.AllocsPerRun(runs, exchange); n > 0.5 && !racing {
			t.Errorf("Sendrecv, Send, Recv and RecvAppend: %v allocations", n)
		}
		return nil
	})
}

// halfway is a local backend on which messages of tag 1 arrive in part, and those of tag 2 find no receiver.
type halfway struct{ backend.Comm }

func (h halfway) Irecv(r *backend.Request, buf []byte, source, tag int) {
	if tag != 1 {
		h.Comm.Irecv(r, buf, source, tag)
	}
}

func (h halfway) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	if tag == 2 {
		return fault(ErrTimeout, "the test's limit")
	}
	return h.Comm.Send(b, buf, dest, tag, mode)
}

// A message that is arriving cannot be withdrawn at the deadline of its Sendrecv. The communicator is then broken, so
// that the rest of the message does not come to memory that is used again.
func TestSendrecvDoesNotLeaveReceiveUnderWay(t *testing.T) {
	for rank, err := range worlds(2, settings{}, func(bc backend.Comm) backend.Comm { return halfway{bc} }, func(c *Comm) error {
		if c.Rank() == 1 {
			return nil
		}
		if _, err := Sendrecv(c, []int{1}, 1, 2, make([]int, 1), 1, 1); !errors.Is(err, ErrTimeout) {
			return fmt.Errorf("Sendrecv returns %v, want %v", err, ErrTimeout)
		}
		return wantErr("Send after it", Send(c, []int{1}, 1, 3), ErrBroken)
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
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
			if err := w.Barrier(); err != nil {
				return err
			}
			if w.Rank() == 0 {
				if err := d.Close(); err != nil {
					return err
				}
				if err := <-result; !errors.Is(err, ErrClosed) {
					return fmt.Errorf("the send to rank %d: %v", to, err)
				}
			}
			if err := w.Barrier(); err != nil {
				return err
			}
			if w.Rank() == to {
				if _, err := MessageRecv(m, make([]byte, 100_000)); err == nil {
					return errors.New("the message of a rank that has closed the communicator was received")
				}
			}
			return nil
		})
	}
}
