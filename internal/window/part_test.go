package window

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/internal/view"
)

// parts returns the parts of a window, of the given lengths in bytes.
func parts(sizes ...int) []Part {
	lay, _ := Apart(sizes, 64)
	return lay.Parts(view.Bytes(make([]uint64, lay.Total/8)))
}

func never() error { return nil }

// addBytes adds elements of one byte.
func addBytes(dst, a, b []byte) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// Random updates of one goroutine give what the same updates of a slice give, from any byte on.
func TestReduceEqualsModel(t *testing.T) {
	const n = 700
	rng := rand.New(rand.NewPCG(1, 2))
	c, model := parts(n)[0], make([]byte, n)
	for range 2000 {
		at := rng.IntN(n)
		in := make([]byte, rng.IntN(n-at))
		for i := range in {
			in[i] = byte(rng.Int())
		}
		old := make([]byte, len(in))
		if err := c.Reduce(addBytes, 1, at, in, old, never); err != nil {
			t.Fatal(err)
		}
		if string(old) != string(model[at:at+len(in)]) {
			t.Fatalf("%d bytes from %d were %v, want %v", len(in), at, old, model[at:at+len(in)])
		}
		addBytes(model[at:at+len(in)], model[at:at+len(in)], in)
	}
	if string(c.Bytes(0, n)) != string(model) {
		t.Error("the part differs from the model")
	}
}

// Goroutines update bytes of the same words, each its own and a common one.
func TestUpdatesOfNeighborsAreKept(t *testing.T) {
	const each = 2000
	c := parts(16)[0]
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range each {
				c.Put(8+g, []byte{byte(i)})
				if err := c.Reduce(addBytes, 1, g, []byte{1}, nil, never); err != nil {
					t.Error(err)
				}
				if err := c.Reduce(addBytes, 1, 7, []byte{1}, nil, never); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var got [16]byte
	for i := range got {
		c.Get(i, got[i:i+1])
	}
	one, last := byte(each%256), byte((each-1)%256)
	if want := [16]byte{one, one, one, one, 0, 0, 0, byte(4 * each % 256), last, last, last, last}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// A rank that dies in an update of a long element leaves its lock taken.
func TestWaitForLockOfDeadRankEnds(t *testing.T) {
	c := parts(16)[0]
	if _, err := c.stripe(0, never); err != nil {
		t.Fatal(err)
	}
	dead := errors.New("dead")
	expired := func() error { return dead }
	if err := c.Reduce(addBytes, 16, 0, make([]byte, 16), nil, expired); !errors.Is(err, dead) {
		t.Errorf("Reduce: %v", err)
	}
	if err := c.CompareSwap(0, make([]byte, 16), make([]byte, 16), make([]byte, 16), expired); !errors.Is(err, dead) {
		t.Errorf("CompareSwap: %v", err)
	}
}
