package window

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/internal/view"
)

// cells returns the Cells of a part with so many bytes of elements.
func cells(n int) Cells {
	return NewCells(view.Bytes(make([]uint64, CellsSize(n)/8)))
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
	c, model := cells(n), make([]byte, n)
	for range 2000 {
		at := rng.IntN(n)
		in := make([]byte, rng.IntN(n-at))
		for i := range in {
			in[i] = byte(rng.Int())
		}
		old := make([]byte, len(in))
		if err := c.Reduce(addBytes, 1, CellsHead+at, in, old, never); err != nil {
			t.Fatal(err)
		}
		if string(old) != string(model[at:at+len(in)]) {
			t.Fatalf("%d bytes from %d were %v, want %v", len(in), at, old, model[at:at+len(in)])
		}
		addBytes(model[at:at+len(in)], model[at:at+len(in)], in)
	}
	if string(c.Bytes(CellsHead, n)) != string(model) {
		t.Error("the part differs from the model")
	}
}

// Goroutines update bytes of the same words, each its own and a common one.
func TestUpdatesOfNeighborsAreKept(t *testing.T) {
	const each = 2000
	c := cells(16)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range each {
				c.Put(CellsHead+8+g, []byte{byte(i)})
				if err := c.Reduce(addBytes, 1, CellsHead+g, []byte{1}, nil, never); err != nil {
					t.Error(err)
				}
				if err := c.Reduce(addBytes, 1, CellsHead+7, []byte{1}, nil, never); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var got [16]byte
	for i := range got {
		c.Get(CellsHead+i, got[i:i+1])
	}
	one, last := byte(each%256), byte((each-1)%256)
	if want := [16]byte{one, one, one, one, 0, 0, 0, byte(4 * each % 256), last, last, last, last}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// A rank that dies in an update of a long element leaves its lock taken.
func TestWaitForLockOfDeadRankEnds(t *testing.T) {
	c := cells(16)
	if _, err := c.lock(CellsHead, never); err != nil {
		t.Fatal(err)
	}
	dead := errors.New("dead")
	expired := func() error { return dead }
	if err := c.Reduce(addBytes, 16, CellsHead, make([]byte, 16), nil, expired); !errors.Is(err, dead) {
		t.Errorf("Reduce: %v", err)
	}
	if err := c.CompareSwap(CellsHead, make([]byte, 16), make([]byte, 16), make([]byte, 16), expired); !errors.Is(err, dead) {
		t.Errorf("CompareSwap: %v", err)
	}
}

func TestLockStateSteps(t *testing.T) {
	take := func(s LockState, kind Kind, rank int, want bool) LockState {
		t.Helper()
		next, has := s.Take(kind, rank)
		if has != want {
			t.Errorf("%v lock of %q: %v, want %v", kind, s, has, want)
		}
		return next
	}
	var s LockState
	s = take(s, Shared, 3, true)
	s = take(s, Shared, 4, true)
	s = take(s, Exclusive, 5, false) // and waits
	s = take(s, Shared, 6, false)    // comes later
	s = s.Release(Shared).Release(Shared)
	s = take(s, Shared, 6, false)
	s = take(s, Exclusive, 5, true)
	if s.String() != "rank 5 holds it exclusively" {
		t.Errorf("the holder: %v", s)
	}
	s = take(s, Exclusive, 0, false).GiveUp(Exclusive)
	if s = s.Release(Exclusive); s != 0 {
		t.Errorf("after the last release: %v", s)
	}
}
