package window

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

var errEnd = errors.New("the end")

func atOnce() error { return errEnd }

// Every pair of kinds is tried.
func TestExclusiveLockExcludesAllOthers(t *testing.T) {
	for _, first := range []Kind{Shared, Exclusive} {
		for _, second := range []Kind{Shared, Exclusive} {
			p := parts(8)[0]
			if err := p.Lock(first, 0, never); err != nil {
				t.Fatal(err)
			}
			err := p.Lock(second, 1, atOnce)
			if both := first == Shared && second == Shared; both != (err == nil) || !both && err != errEnd {
				t.Errorf("%v after %v: %v", second, first, err)
			}
			if err == nil {
				p.Unlock(second, 1)
			}
			p.Unlock(first, 0)
			if s := p.LockState(); s != 0 || p.head.bell.Armed() {
				t.Errorf("%v, %v: the lock is not free: %v", first, second, s)
			}
		}
	}
}

// While a call waits for an exclusive lock, no later call gets a shared one.
func TestExclusiveLockGoesBeforeLaterSharedOnes(t *testing.T) {
	p := parts(8)[0]
	if err := p.Lock(Shared, 0, never); err != nil {
		t.Fatal(err)
	}
	var givesUp atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := p.Lock(Exclusive, 1, func() error {
			if givesUp.Load() {
				return errEnd
			}
			return nil
		}); err != errEnd {
			t.Errorf("the writer: %v", err)
		}
	})
	for p.LockState() == sharer {
		shmem.Yield()
	}
	if err := p.Lock(Shared, 2, atOnce); err != errEnd {
		t.Errorf("another reader: %v", err)
	}
	givesUp.Store(true)
	writer.Wait()
	if err := p.Lock(Shared, 2, atOnce); err != nil { // the writer has given up
		t.Fatal(err)
	}
	p.Unlock(Shared, 0)
	p.Unlock(Shared, 2)
	if s := p.LockState(); s != 0 {
		t.Errorf("the lock is not free: %v", s)
	}
}

func TestLockStateNamesItsHolder(t *testing.T) {
	p := parts(8)[0]
	for _, c := range []struct {
		kind Kind
		rank int
		want string
	}{
		{Exclusive, 0, "rank 0 holds it exclusively"},
		{Exclusive, 1<<21 - 2, "rank 2097150 holds it exclusively"},
		{Shared, 3, "held shared 1 times"},
	} {
		if s, got := p.TryLock(c.kind, c.rank); !got {
			t.Fatalf("%v of rank %d: %v", c.kind, c.rank, s)
		}
		if err := p.Lock(Exclusive, 7, atOnce); err != errEnd {
			t.Errorf("a second lock: %v", err)
		}
		if s := p.LockState().String(); s != c.want {
			t.Errorf("%q, want %q", s, c.want)
		}
		p.Unlock(c.kind, c.rank)
	}
}
