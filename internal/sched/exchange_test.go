package sched

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// A rank that still waits for the others' calls may get what another one says of lengths under the tag of the calls. It does not
// take it for a call.
func TestWrongLengthIsNoCall(t *testing.T) {
	var o Op
	o.enter(comparing)
	for _, v := range []wrong{{receiver: -1}, {receiver: 1, got: 2, want: 1}, {receiver: 2, sender: 1, got: -1, want: 8}} {
		x := exchange{o: &o, wrong: v}
		if _, ok := backend.DecodeSeen(x.encode(), 3); ok {
			t.Errorf("the lengths %+v reads as a call", v)
		}
	}
	x := exchange{o: new(Op), seen: backend.See(1, (&backend.Call{Coll: backend.Barrier}).Fingerprint())}
	if seen, ok := backend.DecodeSeen(x.encode(), 3); !ok || seen != x.seen {
		t.Errorf("a call reads as %+v (%v), want %+v", seen, ok, x.seen)
	}
}
