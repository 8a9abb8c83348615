package cohort

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func TestOpErrorText(t *testing.T) {
	why := fault(ErrTruncate, "got 400 bytes, want 800")
	for _, c := range []struct {
		err  OpError
		want string
	}{
		{OpError{Op: "allreduce", Comm: "world", Rank: 3, Peer: Undefined, Tag: Undefined, Err: why},
			"allreduce: rank 3: message truncated: got 400 bytes, want 800"},
		{OpError{Op: "recv", Comm: "world", Rank: 0, Peer: AnySource, Tag: AnyTag, Err: why},
			"recv: rank 0, peer any, tag any: message truncated: got 400 bytes, want 800"},
		{OpError{Op: "isend", Comm: "world", Rank: 0, Peer: -1, Tag: -1, Err: why},
			"isend: rank 0, peer -1, tag -1: message truncated: got 400 bytes, want 800"},
		{OpError{Op: "send", Comm: "world.dup1", Rank: 1, Peer: 2, Tag: 7, Err: why},
			"send: rank 1 of world.dup1, peer 2, tag 7: message truncated: got 400 bytes, want 800"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if !errors.Is(&c.err, ErrTruncate) || errors.Is(&c.err, ErrCount) {
			t.Errorf("%v does not wrap its sentinel alone", &c.err)
		}
	}
}

// Every exported sentinel is distinct and has a code that maps back to it.
func TestSentinelsHaveDistinctCodes(t *testing.T) {
	all := []error{ErrBuffer, ErrCount, ErrType, ErrTag, ErrRank, ErrRoot, ErrOp, ErrTruncate, ErrComm, ErrClosed, ErrBusy,
		ErrRequest, ErrWin, ErrAlloc, ErrInit, ErrNotSupported, ErrTimeout, ErrCanceled, ErrPeerLost, ErrMismatch, ErrBroken, ErrInternal}
	seen := make(map[string]bool)
	for _, e := range all {
		if seen[e.Error()] {
			t.Errorf("two sentinels say %q", e)
		}
		seen[e.Error()] = true
		if backend.Sentinel(backend.Code(fault(e, "x"))) != e {
			t.Errorf("the code of %q does not lead back to it", e)
		}
	}
}

func TestMPIErrorMatchesItsSentinel(t *testing.T) {
	err := error(&OpError{Op: "recv", Peer: 1, Tag: 2, Err: &MPIError{Class: 15, Code: 205, Text: "message truncated", Sentinel: ErrTruncate}})
	var m *MPIError
	if !errors.Is(err, ErrTruncate) || !errors.As(err, &m) || m.Code != 205 {
		t.Errorf("%v is not found as what it is", err)
	}
	if err := error(&MPIError{Class: 99}); !errors.Is(err, ErrInternal) {
		t.Errorf("an error of an unknown class: %v", err)
	}
}
