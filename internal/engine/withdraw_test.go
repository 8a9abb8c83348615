package engine

import (
	"errors"
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

// Several receives have asked for their messages, when the sender gives them all up. They end, and the next messages are for
// the next receives.
func TestReceivesOfMessagesGivenUpEnd(t *testing.T) {
	const n = 3
	c, write, other := raw(t, 0)
	var q [n]*backend.Request
	for i := range n {
		q[i], _ = irecv(c, 8, 1, 5)
		write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: 8, Token: uint64(9 + i)}, nil)
	}
	asked(t, c, other, n)
	for i := range n {
		write(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: uint64(9 + i)}, nil)
	}
	write(frame.Header{Kind: frame.Eager, Tag: 5}, []byte("message4"))
	for i := range n {
		if err := await(t, c, q[i]); !errors.Is(err, backend.ErrCanceled) {
			t.Errorf("receive %d ends with %v, want ErrCanceled", i, err)
		}
	}
	next, got := irecv(c, 8, 1, 5)
	if err := await(t, c, next); err != nil || string(got) != "message4" {
		t.Errorf("the next receive ends with %q and %v", got, err)
	}
}
