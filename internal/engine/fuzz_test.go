package engine

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// The notice of a failure: whatever came is a fault with a sentinel, and what was sent comes out.
func FuzzFault(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0})
	f.Add([]byte{255, 'x'})
	f.Add(backend.Faultf(backend.ErrPeerLost, "rank 3 was killed").Encode(noticeMax))
	f.Add((&backend.Fault{Sentinel: backend.ErrMismatch, Text: string(make([]byte, 2*noticeMax))}).Encode(noticeMax))
	f.Fuzz(func(t *testing.T, b []byte) {
		fault := backend.DecodeFault(b)
		if fault == nil || fault.Sentinel == nil || backend.Sentinel(backend.Code(fault.Sentinel)) != fault.Sentinel || fault.Error() == "" {
			t.Fatalf("%q is %#v", b, fault)
		}
		text := fault.Encode(noticeMax)
		if len(text) > noticeMax {
			t.Fatalf("a notice of %d bytes", len(text))
		}
		again := backend.DecodeFault(text)
		if again.Sentinel != fault.Sentinel || again.Text != fault.Text[:min(len(fault.Text), noticeMax-1)] {
			t.Fatalf("%v sent is %v", fault, again)
		}
	})
}
