package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// asked waits until receives have asked for their messages, and returns the tokens of the receives in that order.
func asked(t *testing.T, c *comm, other *testLink, receives int) (tokens []uint64) {
	t.Helper()
	for range receives {
		var h frame.Header
		until(t, "asking", c, func() (ok bool) { h, ok = other.header(); return ok })
		if h.Kind != frame.ClearToSend {
			t.Fatalf("the next frame is %+v, want a CTS", h)
		}
		tokens = append(tokens, h.Reply)
	}
	return tokens
}

// Several receives have asked for their messages, when the sender gives them all up. They get the next messages.
func TestReceivesOfMessagesGivenUpArePostedAgain(t *testing.T) {
	const n = 3
	c, write, other := raw(t, 0)
	var q [n]*backend.Request
	var got [n][]byte
	for i := range n {
		q[i], got[i] = irecv(c, 8, 1, 5)
	}
	for i := range n {
		write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: uint64(9 + i)}, nil)
	}
	asked(t, c, other, n)
	for i := range n {
		write(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: uint64(9 + i)}, nil)
	}
	for i := range n {
		write(frame.Header{Kind: frame.Eager, Tag: 5}, fmt.Appendf(nil, "message%d", i))
	}
	for i := range n {
		if err := await(t, c, q[i]); err != nil || string(got[i]) != fmt.Sprintf("message%d", i) {
			t.Errorf("receive %d ends with %q and %v", i, got[i], err)
		}
	}
}

// The sender gives the first message up, for which the first receive has asked. That gets the message for which the second
// receive has asked, unless it does not fit into both buffers: then the first receive ends.
func TestReceiveGetsMessageThatLaterReceiveHasAskedFor(t *testing.T) {
	for _, room := range [][2]int{{8, 8}, {9, 8}, {7, 8}, {8, 7}, {7, 7}} {
		c, write, other := raw(t, 0)
		first, got := irecv(c, room[0], 1, backend.AnyTag)
		second, next := irecv(c, room[1], 1, 5)
		write(frame.Header{Kind: frame.ReadyToSend, Tag: 6, Length: 8, Token: 9}, nil)
		write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: 10}, nil)
		token := asked(t, c, other, 2)[1]
		write(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: 9}, nil)
		fits := room[0] >= 8 && room[1] >= 8
		write(frame.Header{Kind: frame.Data, Token: token}, []byte("message2")[:min(room[1], 8)])
		if !fits {
			if err := await(t, c, first); !errors.Is(err, backend.ErrCanceled) {
				t.Errorf("%v: the first receive ends with %v, want ErrCanceled", room, err)
			}
			first, got = second, next
		}
		err := await(t, c, first)
		if want := "message2"[:min(8, len(got))]; string(got[:len(want)]) != want || errors.Is(err, backend.ErrTruncate) != (len(got) < 8) || first.Status.Tag != 5 {
			t.Errorf("%v: the receive ends with %q, %+v and %v", room, got, first.Status, err)
		}
		if fits {
			write(frame.Header{Kind: frame.Eager, Tag: 5}, []byte("message3"))
			if err := await(t, c, second); err != nil || string(next) != "message3" {
				t.Errorf("%v: the second receive ends with %q and %v", room, next, err)
			}
		}
		if err := c.usable(); err != nil {
			t.Errorf("%v: %v", room, err)
		}
	}
}

// A receive whose message is given up gets the first of the messages that came since. One has arrived for no receive, a
// later one is for another receive.
func TestReceiveGetsFirstMessageSinceThatGivenUp(t *testing.T) {
	c, write, other := raw(t, 0)
	first, got := irecv(c, 8, 1, backend.AnyTag)
	second, next := irecv(c, 8, 1, 5)
	write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: 9}, nil)
	write(frame.Header{Kind: frame.Eager, Tag: 6}, []byte("message1"))
	write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: 10}, nil)
	token := asked(t, c, other, 2)[1]
	write(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: 9}, nil)
	write(frame.Header{Kind: frame.Data, Token: token}, []byte("message2"))
	if err := await(t, c, first); err != nil || string(got) != "message1" {
		t.Errorf("the first receive ends with %q and %v", got, err)
	}
	if err := await(t, c, second); err != nil || string(next) != "message2" {
		t.Errorf("the second receive ends with %q and %v", next, err)
	}
}

// Two receives have asked for their messages. The data of one come, and the sender gives the other message up. The second
// receive has overtaken the first then, and the first has not overtaken the second.
func TestReceiveIsOvertakenByDataOfOneBehind(t *testing.T) {
	for k := range 2 {
		c, write, other := raw(t, 0)
		var q [2]*backend.Request
		var got [2][]byte
		for i := range q {
			q[i], got[i] = irecv(c, 8, 1, 5)
			write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: uint64(9 + i)}, nil)
		}
		write(frame.Header{Kind: frame.Data, Token: asked(t, c, other, 2)[k]}, []byte("message1"))
		write(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: uint64(10 - k)}, nil)
		write(frame.Header{Kind: frame.Eager, Tag: 5}, []byte("message3"))
		if err := await(t, c, q[k]); err != nil || string(got[k]) != "message1" {
			t.Errorf("receive %d ends with %q and %v", k, got[k], err)
		}
		if err := await(t, c, q[1-k]); errors.Is(err, backend.ErrCanceled) != (k == 1) || k == 0 && string(got[1]) != "message3" {
			t.Errorf("receive %d ends with %q and %v", 1-k, got[1-k], err)
		}
	}
}

// A receive's message has partly arrived. A receive of any source, posted after it, has asked for the message of another rank,
// which that gives up.
func TestReceiveIsNotOvertakenByPartOfMessageForOneBefore(t *testing.T) {
	c, write, others := raws(t, 0, 2)
	first, _ := irecv(c, 8, 2, 5)
	write[1](frame.Header{Kind: frame.Eager, Tag: 5, Length: 8}, []byte("mess"))
	until(t, "arriving", c, func() bool { return locked(c, func(e *Engine) bool { return e.posted.Len() == 0 }) })
	second, got := irecv(c, 8, backend.AnySource, 5)
	write[0](frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: 9}, nil)
	asked(t, c, others[0], 1)
	write[0](frame.Header{Kind: frame.Withdraw, Tag: 1, Token: 9}, nil)
	write[0](frame.Header{Kind: frame.Eager, Tag: 5}, []byte("message3"))
	if err := await(t, c, second); err != nil || string(got) != "message3" {
		t.Errorf("the second receive ends with %q and %v", got, err)
	}
	write[1](frame.Header{}, []byte("age1"))
	if err := await(t, c, first); err != nil {
		t.Error(err)
	}
}

// A receive has asked for its message, and another one has arrived that fits it. A look for the text of an error takes
// nothing away from the receive; a probe does, because its caller may receive what it has found.
func TestProbeOvertakesAndLookDoesNot(t *testing.T) {
	for _, probes := range []bool{false, true} {
		c, write, other := raw(t, 0)
		q, got := irecv(c, 8, 1, 5)
		write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: 9}, nil)
		write(frame.Header{Kind: frame.Eager, Tag: 5}, []byte("message2"))
		asked(t, c, other, 1)
		until(t, "arriving", c, func() bool { return locked(c, func(e *Engine) bool { return e.arrived.Len() > 0 }) })
		st, found := c.Arrived()
		if probes {
			st, found, _ = c.Probe(nil, backend.AnySource, backend.AnyTag, false)
		}
		if !found || st != (backend.Status{Source: 1, Tag: 5, Bytes: 8}) {
			t.Errorf("%v, %+v has arrived", found, st)
		}
		write(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: 9}, nil)
		if err := await(t, c, q); errors.Is(err, backend.ErrCanceled) != probes || !probes && string(got) != "message2" {
			t.Errorf("after a probe %v the receive ends with %q and %v", probes, got, err)
		}
	}
}
