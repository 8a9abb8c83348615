package remote

import (
	"bufio"
	"io"
	"testing"
)

// TestHost_WaitsForOthers has an agent that says it is there for a long time before anybody wants to hear of it: it
// is given up only when it says nothing.
func TestHost_WaitsForOthers(t *testing.T) {
	r, w := io.Pipe()
	h := &host{shell: &shell{r: bufio.NewReader(r), ended: make(chan struct{})}, link: newLink(closer{io.Discard})}
	close(h.shell.ended) // nothing is there that could be killed, and check is called here alone
	closed := make(chan struct{})
	h.attend(closed)
	defer w.Close()
	defer h.link.close()
	defer close(closed)
	say := func(k kind) {
		t.Helper()
		if _, err := w.Write(appendFrame(nil, k)); err != nil { // comes back when it is read
			t.Fatal(err)
		}
	}
	for i := range 4 * silence {
		say(kindPing)
		if !h.check() {
			t.Fatalf("given up after %d words", i+1)
		}
	}
	say(kindEnded)
	if k, _, err := h.next(); k != kindEnded || err != nil {
		t.Fatalf("%q, %v", k, err)
	}
	checks := 1
	for h.check() {
		checks++
	}
	if checks != silence+1 || !h.silent.Load() {
		t.Errorf("given up by check %d of silence, want %d", checks, silence+1)
	}
}
