package cohort

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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

// Wrong arguments are found before anything is sent. The error has the sentinel and the operation.
func TestPointToPointRejectsWrongArguments(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		buf := []int{1}
		for _, c := range []struct {
			op   string
			want error
			call func() error
		}{
			{"send", ErrRank, func() error { return Send(w, buf, 2, 0) }},
			{"send", ErrTag, func() error { return Send(w, buf, ProcNull, -2) }},
			{"send", ErrComm, func() error { return Send(nil, buf, 0, 0) }},
			{"send", ErrComm, func() error { return Send(new(Comm), buf, 0, 0) }},
			{"ssend", ErrRank, func() error { return Ssend(w, buf, 2, 0) }},
			{"isend", ErrTag, func() error { return second(Isend(w, buf, 0, -2)) }},
			{"issend", ErrRank, func() error { return second(Issend(w, buf, 9, 0)) }},
			{"recv", ErrRank, func() error { return second(Recv(w, buf, 2, 0)) }},
			{"recv", ErrComm, func() error { return second(Recv(nil, buf, 0, 0)) }},
			{"irecv", ErrRank, func() error { return second(Irecv(w, buf, 3, 0)) }},
			{"recvappend", ErrRank, func() error { _, _, err := RecvAppend[int](w, nil, -7, 0); return err }},
			{"sendrecv", ErrTag, func() error { return second(Sendrecv(w, buf, 0, 0, nil, 0, -9)) }},
			{"probe", ErrRank, func() error { return second(w.Probe(2, 0)) }},
			{"iprobe", ErrTag, func() error { _, _, err := w.Iprobe(0, -3); return err }},
			{"mprobe", ErrComm, func() error { _, _, err := (*Comm)(nil).Mprobe(0, 0); return err }},
			{"improbe", ErrRank, func() error { _, _, _, err := w.Improbe(5, 0); return err }},
			{"messagerecv", ErrRequest, func() error { return second(MessageRecv[int](nil, nil)) }},
			{"imessagerecv", ErrRequest, func() error { return second(ImessageRecv[int](nil, nil)) }},
			{"sendinit", ErrRank, func() error { return second(SendInit(w, buf, 2, 0)) }},
			{"ssendinit", ErrTag, func() error { return second(SsendInit(w, buf, 0, -2)) }},
			{"recvinit", ErrType, func() error { return second(RecvInit(w, []string{}, 0, 0)) }},
		} {
			err := c.call()
			if err := errors.Join(wantErr(c.op, err, c.want), isOp(err, c.op)); err != nil {
				t.Error(err)
			}
		}
		return w.Barrier()
	})
}

func TestProcNullOfMatchedAppendedAndPersistentReceives(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		buf := []int{7}
		null := func(what string, st Status, err error) {
			if err != nil || st.Source != ProcNull || st.Tag != AnyTag || st.Bytes() != 0 || buf[0] != 7 {
				t.Errorf("%s: %+v, %v, buffer %v", what, st, err, buf)
			}
		}
		m, st, err := w.Mprobe(ProcNull, AnyTag)
		null("mprobe", st, err)
		st, err = MessageRecv(m, buf)
		null("messagerecv", st, err)
		got, st, err := RecvAppend[int](w, nil, ProcNull, 0)
		if null("recvappend", st, err); got != nil {
			t.Errorf("recvappend: %v", got)
		}
		p, err := RecvInit(w, buf, ProcNull, 0)
		if err != nil {
			return err
		}
		st, err = p.Run()
		null("recvinit", st, err)
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
	onWorlds(t, 2, settings{}, func(bc backend.Comm) backend.Comm { return halfway{bc} }, func(c *Comm) error {
		if c.Rank() == 1 {
			return nil
		}
		if _, err := Sendrecv(c, []int{1}, 1, 2, make([]int, 1), 1, 1); !errors.Is(err, ErrTimeout) {
			return fmt.Errorf("Sendrecv returns %v, want %v", err, ErrTimeout)
		}
		return wantErr("Send after it", Send(c, []int{1}, 1, 3), ErrBroken)
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
