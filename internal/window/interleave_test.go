//go:build interleave && linux

package window

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// lockable returns a part whose lock has a name in traces.
func lockable(x *interleave.Run) *Part {
	p := &parts(8)[0]
	x.Name(&p.head.state, "lock")
	return p
}

// visit locks the part, accesses it as the lock allows, and unlocks it.
func visit(p *Part, kind Kind, rank int, expired func() error) error {
	if err := p.Lock(kind, rank, expired); err != nil {
		return err
	}
	if kind == Exclusive {
		word.Writes(p.All())
	} else {
		word.Reads(p.All())
	}
	p.Unlock(kind, rank)
	return nil
}

// free returns an error if a rank holds the lock or waits for it.
func free(p *Part) error {
	if s := p.LockState(); s != 0 || p.head.bell.Armed() {
		return fmt.Errorf("the lock's state is %#x (%v), and a rank sleeps: %v", uint64(s), s, p.head.bell.Armed())
	}
	return nil
}

// An exclusive lock excludes all others. Every rank gets the lock that it waits for, although no nap ends by its time.
func TestInterleaveLocks(t *testing.T) {
	for _, kinds := range [][]Kind{{Exclusive, Exclusive}, {Exclusive, Shared}, {Exclusive, Exclusive, Shared}, {Exclusive, Shared, Shared}} {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 5 - len(kinds)}, func(x *interleave.Run) {
				p := lockable(x)
				for r, kind := range kinds {
					x.Go(fmt.Sprintf("rank %d", r), func() { _ = visit(p, kind, r, never) })
				}
				x.Check(func() error { return free(p) })
			})
		})
	}
}

// A rank that waits for an exclusive lock gives up. Another one, which could not share the lock meanwhile, gets it,
// although no nap ends by its time.
func TestInterleaveLockThatIsGivenUp(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 4}, func(x *interleave.Run) {
		p := lockable(x)
		p.TryLock(Shared, 0)
		x.Go("rank 1", func() {
			if err := p.Lock(Exclusive, 1, atOnce); err != errEnd {
				x.Errorf("the lock is shared, and an exclusive one: %v", err)
			}
		})
		x.Go("rank 2", func() { _ = p.Lock(Shared, 2, never) })
	})
}

// A rank dies at any time. Another one that waits for its lock gets it, or learns of the loss.
func TestInterleaveLockOfDeadRank(t *testing.T) {
	for _, kinds := range [][2]Kind{{Exclusive, Exclusive}, {Exclusive, Shared}, {Shared, Exclusive}} {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Deaths: 1, Naps: true}, func(x *interleave.Run) {
				p := lockable(x)
				x.GoMortal("rank 0", func() { _ = visit(p, kinds[0], 0, never) })
				x.Go("rank 1", func() {
					_ = visit(p, kinds[1], 1, func() error {
						if x.Dead("rank 0") {
							return errEnd
						}
						return nil
					})
				})
			})
		})
	}
}

// Two ranks update elements of a word, and elements with locks. No update is lost, and each rank gets what the element
// was before its own.
func TestInterleaveUpdates(t *testing.T) {
	for _, size := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
				c := parts(16)[0]
				got := make([][]byte, 2)
				for r := range got {
					got[r] = make([]byte, size)
					x.Go(fmt.Sprintf("rank %d", r), func() {
						one := make([]byte, size)
						one[0] = 1
						if err := c.Reduce(addBytes, size, 0, one, got[r], never); err != nil {
							x.Errorf("%v", err)
						}
						if size == 1 {
							c.Put(1+r, []byte{9})
						}
					})
				}
				x.Check(func() error {
					b := c.Bytes(0, 16)
					if b[0] != 2 || got[0][0]+got[1][0] != 1 || size == 1 && (b[1] != 9 || b[2] != 9) {
						return fmt.Errorf("the part has %v, and the ranks got %v", b, got)
					}
					return nil
				})
			})
		})
	}
}

// Two ranks exchange an element that they expect to be 0. One of them does.
func TestInterleaveExchange(t *testing.T) {
	for _, size := range []int{1, 8, 16} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
				c := parts(16)[0]
				got := [2][]byte{make([]byte, size), make([]byte, size)}
				for r := range got {
					x.Go(fmt.Sprintf("rank %d", r), func() {
						with := make([]byte, size)
						with[0] = byte(r + 1)
						if err := c.CompareSwap(0, make([]byte, size), with, got[r], never); err != nil {
							x.Errorf("%v", err)
						}
					})
				}
				x.Check(func() error {
					has, a, b := c.Bytes(0, 1)[0], got[0][0], got[1][0]
					if has == 1 && a == 0 && b == 1 || has == 2 && a == 2 && b == 0 {
						return nil
					}
					return fmt.Errorf("the element is %d, and the ranks got %d and %d", has, a, b)
				})
			})
		})
	}
}

// A rank dies in the update of a long element. Another one updates it, or learns of the loss.
func TestInterleaveUpdateBehindDeadRank(t *testing.T) {
	interleave.Explore(t, interleave.Config{Deaths: 1, Naps: true}, func(x *interleave.Run) {
		c := parts(16)[0]
		lost := func() error {
			if x.Dead("rank 0") {
				return errEnd
			}
			return nil
		}
		add := func(expired func() error) error {
			return c.Reduce(addBytes, 16, 0, append(make([]byte, 15), 1), nil, expired)
		}
		x.GoMortal("rank 0", func() { _ = add(never) })
		x.Go("rank 1", func() {
			if err := add(lost); err != nil && err != errEnd {
				x.Errorf("%v", err)
			}
		})
	})
}
