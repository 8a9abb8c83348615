package tensor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// wantErr returns an error unless err wraps the sentinel and contains all words.
func wantErr(what string, err, sentinel error, words ...string) error {
	if err = is(err, sentinel, words...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// alone runs a test on a job of one rank, which can send short or nonblocking messages to itself.
func alone(t *testing.T, test func(c *Comm) error) {
	t.Helper()
	onRanks(t, []int{1}, func(_ *testing.T, world *cohort.Comm) error {
		c := must.Get(messageComm(world))
		return errors.Join(test(c), c.Close())
	})
}

func TestMessagesRejectWrongArguments(t *testing.T) {
	alone(t, func(c *Comm) error {
		x, _ := New[float32](4)
		deep, _ := New[float32](ones[int](maxDims + 1)...)
		holed, err := Strided(make([]float32, 8), []int{4}, []int{2})
		if err != nil {
			return err
		}
		var all []error
		for _, v := range []struct {
			name     string
			c        *Comm
			t        *Tensor[float32]
			peer     int
			tag      int
			sentinel error
		}{
			{"rank", c, x, 1, 0, cohort.ErrRank},
			{"negative rank", c, x, -7, 0, cohort.ErrRank},
			{"tag", c, x, 0, -5, cohort.ErrTag},
			{"no communicator", nil, x, 0, 0, cohort.ErrComm},
			{"an empty communicator", &Comm{}, x, 0, 0, cohort.ErrComm},
			{"no tensor", c, nil, 0, 0, cohort.ErrBuffer},
			{"gaps", c, holed, 0, 0, cohort.ErrBuffer},
			{"dimensions", c, deep, 0, 0, cohort.ErrCount},
		} {
			_, sent := Isend(v.c, v.t, v.peer, v.tag)
			_, received := Recv(v.c, v.t, v.peer, v.tag)
			_, posted := Irecv(v.c, v.t, v.peer, v.tag)
			y, _ := New[float32](4)
			_, first := Sendrecv(v.c, v.t, v.peer, v.tag, y, cohort.ProcNull, 0)
			_, second := Sendrecv(v.c, y, cohort.ProcNull, 0, v.t, v.peer, v.tag)
			all = append(all,
				wantErr(v.name+": Send", Send(v.c, v.t, v.peer, v.tag), v.sentinel, "tensor: send:"),
				wantErr(v.name+": Isend", sent, v.sentinel, "tensor: isend:"),
				wantErr(v.name+": Recv", received, v.sentinel, "tensor: recv:"),
				wantErr(v.name+": Irecv", posted, v.sentinel, "tensor: irecv:"),
				wantErr(v.name+": Sendrecv", first, v.sentinel, "tensor: sendrecv:"),
				wantErr(v.name+": Sendrecv", second, v.sentinel, "tensor: sendrecv:"))
			if v.t != x {
				continue
			}
			_, _, made := RecvAppend[float32](v.c, nil, v.peer, v.tag)
			_, _, probed := v.c.Mprobe(v.peer, v.tag)
			_, _, _, looked := v.c.Improbe(v.peer, v.tag)
			all = append(all,
				wantErr(v.name+": RecvAppend", made, v.sentinel, "tensor: recvappend:"),
				wantErr(v.name+": Mprobe", probed, v.sentinel, "tensor: mprobe:"),
				wantErr(v.name+": Improbe", looked, v.sentinel, "tensor: improbe:"))
		}
		_, err = Sendrecv(c, x, 0, 0, x, 0, 0)
		all = append(all, wantErr("one tensor", err, cohort.ErrBuffer))
		part, err := x.Sub(0, 1, 3)
		if err != nil {
			return err
		}
		pair, err := x.Sub(0, 2, 4)
		if err != nil {
			return err
		}
		_, err = Sendrecv(c, part, 0, 0, pair, 0, 0)
		all = append(all, wantErr("tensors that overlap", err, cohort.ErrBuffer))
		var e *cohort.OpError
		if err := Send(c, x, 9, 3); !errors.As(err, &e) || e.Op != "send" || e.Peer != 9 || e.Tag != 3 || e.Rank != 0 {
			all = append(all, fmt.Errorf("the error of a send is %+v", e))
		}
		return errors.Join(all...)
	})
}

func TestMessagesToProcNull(t *testing.T) {
	alone(t, func(c *Comm) error {
		x, err := stuff[int32](CPU, 1, 1000)
		if err != nil {
			return err
		}
		none := cohort.ProcNull
		h, err1 := Isend(c, x, none, 3)
		g, err2 := Irecv(c, x, none, 3)
		st, err3 := Recv(c, x, none, 3)
		y, st2, err4 := RecvAppend[int32](c, nil, none, 3)
		m, in, err5 := c.Mprobe(none, 3)
		_, in2, ok, err6 := c.Improbe(none, 3)
		st4, err7 := MessageRecv(m, x)
		if err := errors.Join(Send(c, x, none, 3), err1, err2, err3, err4, err5, err6, err7, WaitAll(h, g), holds(x, 1, 1000)); err != nil {
			return err
		}
		st3, _ := g.Wait()
		want := cohort.Status{Source: none, Tag: cohort.AnyTag}
		if st != want || st2 != want || st3 != want || st4 != want || y.Len() != 0 || !ok || in.Source != none || in2.Source != none || in.Shape != nil {
			return fmt.Errorf("from ProcNull: %+v, %+v, %+v, %+v, %v, %+v, %t %+v", st, st2, st3, st4, y, in, ok, in2)
		}
		return nil
	})
}

// soon returns a handle with a short deadline.
func soon(c *Comm) (*Comm, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	return c.WithContext(ctx), cancel
}

// A canceled receive takes no later message, nor does a canceled probe.
func TestCanceledReceiveTakesNoMessage(t *testing.T) {
	alone(t, func(c *Comm) error {
		x, err := stuff[int32](CPU, 1, 3)
		if err != nil {
			return err
		}
		y, _ := New[int32](3)
		late, cancel := soon(c)
		defer cancel()
		var all []error
		_, err = Recv(late, y, 0, 1)
		all = append(all, wantErr("Recv", err, cohort.ErrTimeout, "tag 1"))
		h, err := Irecv(late, y, cohort.AnySource, 1)
		all = append(all, err, wantErr("Irecv", WaitAll(h), cohort.ErrTimeout))
		_, _, err = RecvAppend[int32](late, nil, 0, 1)
		all = append(all, wantErr("RecvAppend", err, cohort.ErrTimeout))
		_, _, err = late.Mprobe(0, cohort.AnyTag)
		all = append(all, wantErr("Mprobe", err, cohort.ErrTimeout))
		_, err = Sendrecv(late, x, cohort.ProcNull, 0, y, 0, 1)
		all = append(all, wantErr("Sendrecv", err, cohort.ErrTimeout))
		gone, stop := context.WithCancelCause(context.Background())
		stop(errors.New("enough"))
		_, err = Recv(c.WithContext(gone), y, 0, 1)
		all = append(all, wantErr("Recv", err, cohort.ErrCanceled, "enough"), Send(c, x, 0, 1))
		_, err = Recv(c, y, 0, 1)
		return errors.Join(append(all, err, holds(y, 1, 3))...)
	})
}

// If a sender times out in the middle of a message, the receive ends as well, and the next message
// is right, whichever of the two starts first.
func TestSendTimeoutEndsReceive(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c := must.Get(messageComm(world))
		const n = 1 << 16 // too long for the backend to buffer
		x, err := stuff[int64](CPU, 1, n)
		if err != nil {
			return err
		}
		c.core.cfg.Chunk = 1 << 18 // the sender's pieces, as the envelope says
		if c.Rank() == 0 {
			late, cancel := soon(c)
			defer cancel()
			err = wantErr("Send", Send(late, x, 1, 4), cohort.ErrTimeout, "int64[65536] on cpu", "tag 4")
			return errors.Join(err, world.Barrier(), Send(c, x, 1, 4), world.Barrier(), c.Close())
		}
		y, _ := New[int64](n)
		err = world.Barrier()
		_, e := Recv(c, y, 0, 4)
		err = errors.Join(err, wantErr("Recv", e, cohort.ErrTimeout, "rank 0 stopped sending"))
		_, e = Recv(c, y, 0, 4)
		return errors.Join(err, e, holds(y, 1, n), world.Barrier(), c.Close())
	})
}

// A receiver that times out in the middle of a message does not block the sender.
func TestReceiveTimeoutReleasesSender(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c, err := messageComm(world)
		if err != nil {
			return err
		}
		const n = 200 << 10
		c.core.cfg.Chunk = 1 << 16 // longer than the backend buffers
		if c.Rank() == 0 {
			// An envelope whose payload comes after the receiver has timed out.
			x := must.Get(stuff[int8](CPU, 2, n))
			p, err := x.untyped()
			if err != nil {
				return err
			}
			l := &envelope{peer: 1, out: true}
			if err = c.messages.begin(l, true); err != nil {
				return err
			}
			err = cohort.Send(c.head, l.write(&p, c.core.cfg.Chunk), 1, 0)
			err = errors.Join(err, world.Barrier())
			f := payload{c: c, peer: 1, tag: l.number, size: p.size, piece: c.core.cfg.Chunk}
			err = errors.Join(err, f.sendAll(&p, mark{}))
			c.messages.done(l, true)
			return errors.Join(err, Send(c, x, 1, 0), world.Barrier(), c.Close())
		}
		y, _ := New[int8](n)
		late, cancel := soon(c)
		defer cancel()
		if _, err = c.head.Probe(0, 0); err != nil {
			return err
		}
		_, err = Recv(late, y, 0, 0)
		err = errors.Join(wantErr("Recv", err, cohort.ErrTimeout), world.Barrier())
		_, e := Recv(c, y, 0, 0)
		return errors.Join(err, e, holds(y, 2, n), world.Barrier(), c.Close())
	})
}

// The receiver's deadline passes between the empty piece of a sender that stops and the reason that follows. The receiver
// gets its own error, and the reason is received nevertheless.
func TestDeadlineBeforeReasonOfSender(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c, err := messageComm(world)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			limit, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err = errors.Join(cohort.Send[byte](c.load, nil, 1, 7), world.Barrier())
			return errors.Join(err, cohort.Ssend(c.load.WithContext(limit), []byte("reason"), 1, 7), world.Barrier(), c.Close())
		}
		_, err = c.load.Probe(0, 7)
		late, cancel := soon(c)
		defer cancel()
		f := payload{c: late, peer: 0, tag: 7, size: 10, piece: 10}
		err = errors.Join(err, wantErr("a piece", f.recv(make([]byte, 10)), cohort.ErrTimeout))
		return errors.Join(err, world.Barrier(), world.Barrier(), c.Close())
	})
}

// A Sendrecv that cannot send takes no message.
func TestSendrecvWithWrongDestinationReceivesNothing(t *testing.T) {
	alone(t, func(c *Comm) error {
		x, y := must.Get(stuff[int8](CPU, 2, 4)), must.Get(stuff[int8](CPU, 5, 4))
		err := Send(c, x, 0, 3)
		for _, to := range [][2]int{{9, 3}, {0, -5}} {
			_, e := Sendrecv(c, x, to[0], to[1], y, 0, 3)
			if e == nil {
				e = fmt.Errorf("Sendrecv to %v returns nil", to)
			} else {
				e = holds(y, 5, 4)
			}
			err = errors.Join(err, e)
		}
		limit, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, e := Recv(c.WithContext(limit), y, 0, 3)
		return errors.Join(err, e, holds(y, 2, 4))
	})
}

// Device work that never ends does not delay an operation beyond its deadline.
func TestDeadlineEndsWaitForStuckDevice(t *testing.T) {
	alone(t, func(c *Comm) error {
		drv := soft.New(soft.Config{})
		acc, err := drv.Device(0)
		if err != nil {
			return err
		}
		d := newDevice("soft", acc)
		x, err := NewOn[int8](d, 5000)
		if err != nil {
			return err
		}
		s, err := d.NewStream()
		if err != nil {
			return err
		}
		if x, err = x.On(s); err != nil {
			return err
		}
		y, err := stuff[int8](CPU, 1, 5000)
		if err != nil {
			return err
		}
		run := make(chan struct{})
		if err = s.s.(*soft.Stream).Do(func(func(accel.Address, int) []byte) { <-run }); err != nil {
			return err
		}
		late, cancel := soon(c)
		defer cancel()
		h, err := Irecv(c, y, 0, 0)
		if err != nil {
			return err
		}
		all := []error{wantErr("Send", Send(late, x, 0, 0), cohort.ErrTimeout, "int8[5000] on soft:0")}
		all = append(all, wantErr("Irecv", WaitAll(h), cohort.ErrTimeout, "rank 0 stopped sending"))
		h, err = Isend(c, y, 0, 0)
		if err != nil {
			return err
		}
		_, err = Recv(late, x, 0, 0)
		all = append(all, wantErr("Recv", err, cohort.ErrTimeout, "int8[5000] on soft:0"), WaitAll(h))
		close(run)
		return errors.Join(append(all, s.Close(), x.Close(), left([]*Device{d}, drv))...)
	})
}

// Close ends receives and probes without a message, and nothing can start after it.
func TestCloseEndsReceives(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c := must.Get(messageComm(world))
		x, _ := New[int32](5)
		h, err := Irecv(c, x, cohort.AnySource, cohort.AnyTag)
		if err != nil {
			return err
		}
		probed := make(chan error)
		go func() {
			_, _, err := c.Mprobe(1-c.Rank(), 3)
			probed <- err
		}()
		if err = errors.Join(world.Barrier(), c.Close()); err != nil {
			return err
		}
		// The other rank may have closed first.
		if err = WaitAll(h); !errors.Is(err, cohort.ErrPeerLost) {
			err = wantErr("Irecv", err, cohort.ErrClosed)
		} else {
			err = nil
		}
		if e := <-probed; !errors.Is(e, cohort.ErrPeerLost) {
			err = errors.Join(err, wantErr("Mprobe", e, cohort.ErrClosed))
		}
		_, e1 := Recv(c, x, 0, 0)
		_, e2 := Irecv(c, x, 0, 0)
		_, e3 := Isend(c, x, 0, 0)
		_, _, _, e4 := c.Improbe(0, 0)
		for _, e := range []error{Send(c, x, 0, 0), e1, e2, e3, e4} {
			err = errors.Join(err, wantErr("after Close", e, cohort.ErrClosed))
		}
		return errors.Join(err, c.Close())
	})
}

// Close waits for blocking receives whose messages have arrived, and the senders learn of no loss.
func TestCloseWaitsForReceivesOfArrivedMessages(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // in some rounds Close runs before the receives' goroutines do
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) (err error) {
		for round := 0; err == nil && round < 20; round++ {
			err = closeBesideReceives(world)
		}
		return err
	})
}

func closeBesideReceives(world *cohort.Comm) error {
	c, err := messageComm(world)
	if err != nil {
		return err
	}
	const n = 8
	x, _ := New[int32](1000)
	if c.Rank() == 0 {
		hs := make([]*Handle, n)
		err = world.Barrier()
		for tag := 0; err == nil && tag < n; tag++ {
			hs[tag], err = Isend(c, x, 1, tag)
		}
		return errors.Join(err, Send(c, x, 1, n), WaitAll(hs...), c.Close())
	}
	ended := make(chan error, n)
	for tag := range n {
		y, _ := New[int32](1000)
		go func() {
			_, err := Recv(c, y, 0, tag)
			ended <- err
		}()
	}
	for begun := 0; begun < n; runtime.Gosched() {
		c.messages.mu.Lock()
		begun = c.messages.waiting
		c.messages.mu.Unlock()
	}
	err = world.Barrier()
	_, last := Recv(c, x, 0, n) // which rank 0 has sent after the others
	err = errors.Join(err, last, c.Close())
	for range n {
		err = errors.Join(err, <-ended)
	}
	return err
}

// A rank that closes its communicator without receiving ends the sends to it, so that the senders
// reach their own Close.
func TestCloseEndsUnreceivedSends(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c := must.Get(messageComm(world))
		if c.Rank() == 1 {
			return c.Close()
		}
		c.core.cfg.Chunk = 1 << 18 // longer than the backend buffers
		x, _ := New[int8](1 << 20)
		h, err := Isend(c, x, 1, 0)
		if err == nil {
			err = c.Close()
			if e := WaitAll(h); e == nil {
				err = errors.Join(err, errors.New("a long message was sent to a rank that did not receive it"))
			}
		} else if errors.Is(err, cohort.ErrPeerLost) {
			err = c.Close()
		}
		return err
	})
}

// Payload tags restart after the largest one.
func TestPayloadTagsWrapAround(t *testing.T) {
	alone(t, func(c *Comm) error {
		m := &c.core.messages
		m.maxTag = 3
		for i := range 10 {
			x, err := stuff[int8](CPU, i, 5000)
			if err != nil {
				return err
			}
			h, err := Isend(c, x, 0, 0)
			if err != nil {
				return err
			}
			y, _ := New[int8](5000)
			if _, err = Recv(c, y, 0, 0); err != nil {
				return err
			}
			if err = errors.Join(WaitAll(h), holds(y, i, 5000)); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		if want := 10 % 4; m.sent[0] != want {
			return fmt.Errorf("the next tag is %d, want %d", m.sent[0], want)
		}
		return nil
	})
}
