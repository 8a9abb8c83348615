//go:build interleave && linux

package window

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/word"
)

var errLost = errors.New("a rank is lost")

// rank is a communicator that knows its rank, and whether another rank has died.
type rank struct {
	backend.Comm
	number int
	died   func() bool
}

func (r rank) Rank() int     { return r.number }
func (r rank) Broken() error { return nil }

func (r rank) Probe(*backend.Bound, int, int, bool) (backend.Status, bool, error) {
	if r.died() {
		return backend.Status{}, false, errLost
	}
	return backend.Status{}, false, nil
}

// mapping is a rank's view of memory. Nobody may touch it after Close.
type mapping struct {
	backend.Memory
	bytes []byte
	last  bool // no other rank has the memory
}

func (m mapping) Bytes() []byte { return m.bytes }
func (m mapping) Joint() bool   { return false }

func (m mapping) Close() error {
	if m.last {
		word.Freed(m.bytes)
	}
	return nil
}

// ends returns the ends of a window of n ranks, of which each part has 8 bytes.
func ends(x *interleave.Run, n int, died func() bool) []*Window {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = 8
	}
	lay, _ := Apart(sizes, lockSize)
	mem := view.Bytes(make([]uint64, lay.Total/8))
	all := make([]*Window, n)
	for r := range all {
		all[r] = New(rank{number: r, died: died}, mapping{bytes: mem, last: n == 1}, lay)
	}
	for r := range n {
		l := &all[0].locks[r]
		x.Name(&l.state, "state of lock %d", r)
		x.Name(&l.wanted, "wanted of lock %d", r)
	}
	return all
}

func nobody() bool { return false }

// visit locks part 0, accesses it as the lock allows, and unlocks it.
func visit(w *Window, kind Kind) error {
	ticket, err := w.Lock(nil, kind, 0)
	if err != nil {
		return err
	}
	part, err := w.Part(0)
	if err != nil {
		return err
	}
	if kind == Exclusive {
		word.Writes(part)
	} else {
		word.Reads(part)
	}
	return w.Unlock(0, ticket)
}

// free returns an error if a rank holds a lock or waits for it.
func free(w *Window) error {
	for r := range w.locks {
		if l := &w.locks[r]; l.state.Load() != 0 || l.wanted.Load() != 0 || l.bell.Armed() {
			return fmt.Errorf("lock %d: state %#x, wanted %d, asleep %v", r, l.state.Load(), l.wanted.Load(), l.bell.Armed())
		}
	}
	return nil
}

// An exclusive lock excludes all others. Every rank gets the lock that it waits for, although no nap ends by its time.
func TestInterleaveLocks(t *testing.T) {
	for _, kinds := range [][]Kind{{Exclusive, Exclusive}, {Exclusive, Shared}, {Exclusive, Exclusive, Shared}, {Exclusive, Shared, Shared}} {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 5 - len(kinds)}, func(x *interleave.Run) {
				all := ends(x, len(kinds), nobody)
				for r, w := range all {
					x.Go(fmt.Sprintf("rank %d", r), func() {
						if err := visit(w, kinds[r]); err != nil {
							x.Errorf("rank %d: %v", r, err)
						}
					})
				}
				x.Check(func() error { return free(all[0]) })
			})
		})
	}
}

// A rank that waits for an exclusive lock gives up. Another one, which could not share the lock meanwhile, gets it,
// although no nap ends by its time.
func TestInterleaveLockThatIsGivenUp(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 4}, func(x *interleave.Run) {
		all := ends(x, 1, nobody)
		l := &all[0].locks[0]
		l.try(Shared, 0)
		x.Go("rank 1", func() {
			if err := l.take(Exclusive, 1, func() error { return errLost }); err != errLost {
				x.Errorf("the lock is shared, and an exclusive one: %v", err)
			}
		})
		x.Go("rank 2", func() {
			if err := l.take(Shared, 2, func() error { return nil }); err != nil {
				x.Errorf("%v", err)
			}
		})
	})
}

// A rank dies at any time. Another one that waits for its lock gets it, or learns of the loss.
func TestInterleaveLockOfDeadRank(t *testing.T) {
	for _, kinds := range [][2]Kind{{Exclusive, Exclusive}, {Exclusive, Shared}, {Shared, Exclusive}} {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Deaths: 1, Naps: true}, func(x *interleave.Run) {
				all := ends(x, 2, func() bool { return x.Dead("rank 0") })
				x.GoMortal("rank 0", func() { _ = visit(all[0], kinds[0]) })
				x.Go("rank 1", func() {
					if err := visit(all[1], kinds[1]); err != nil && !errors.Is(err, errLost) {
						x.Errorf("%v", err)
					}
				})
			})
		})
	}
}

// Two goroutines close the end of a rank while a third one locks a part: nobody touches memory that is not mapped.
func TestInterleaveCloseOfLockedWindow(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		w := ends(x, 1, nobody)[0]
		x.Go("user", func() {
			ticket, err := w.Lock(nil, Exclusive, 0)
			if err == nil {
				err = w.Unlock(0, ticket)
			}
			if err != nil && !errors.Is(err, backend.ErrClosed) {
				x.Errorf("%v", err)
			}
		})
		for _, name := range []string{"closer", "other closer"} {
			x.Go(name, func() {
				if err := w.Close(0, nil); err != nil && !errors.Is(err, backend.ErrWin) {
					x.Errorf("%v", err)
				}
			})
		}
	})
}

// A rank closes the window while it holds a lock. Another rank that waits for the lock gets it.
func TestInterleaveCloseReleasesLock(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		all := ends(x, 2, nobody)
		x.Go("rank 0", func() {
			if _, err := all[0].Lock(nil, Exclusive, 0); err != nil {
				x.Errorf("%v", err)
			}
			if err := all[0].Close(0, nil); !errors.Is(err, backend.ErrWin) {
				x.Errorf("%v", err)
			}
		})
		x.Go("rank 1", func() {
			if err := visit(all[1], Exclusive); err != nil {
				x.Errorf("%v", err)
			}
		})
		x.Check(func() error { return free(all[1]) })
	})
}

// Two ranks update elements of a word, and elements with locks. No update is lost, and each rank gets what the element
// was before its own.
func TestInterleaveUpdates(t *testing.T) {
	for _, size := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
				c := cells(16)
				got := make([][]byte, 2)
				for r := range got {
					got[r] = make([]byte, size)
					x.Go(fmt.Sprintf("rank %d", r), func() {
						one := make([]byte, size)
						one[0] = 1
						if err := c.Reduce(addBytes, size, CellsHead, one, got[r], never); err != nil {
							x.Errorf("%v", err)
						}
						if size == 1 {
							c.Put(CellsHead+1+r, []byte{9})
						}
					})
				}
				x.Check(func() error {
					b := c.Bytes(CellsHead, 16)
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
				c := cells(16)
				got := [2][]byte{make([]byte, size), make([]byte, size)}
				for r := range got {
					x.Go(fmt.Sprintf("rank %d", r), func() {
						with := make([]byte, size)
						with[0] = byte(r + 1)
						if err := c.CompareSwap(CellsHead, make([]byte, size), with, got[r], never); err != nil {
							x.Errorf("%v", err)
						}
					})
				}
				x.Check(func() error {
					has, a, b := c.Bytes(CellsHead, 1)[0], got[0][0], got[1][0]
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
	interleave.Explore(t, interleave.Config{Deaths: 1}, func(x *interleave.Run) {
		c := cells(16)
		lost := func() error {
			if x.Dead("rank 0") {
				return errLost
			}
			return nil
		}
		add := func(expired func() error) error {
			return c.Reduce(addBytes, 16, CellsHead, append(make([]byte, 15), 1), nil, expired)
		}
		x.GoMortal("rank 0", func() { _ = add(never) })
		x.Go("rank 1", func() {
			if err := add(lost); err != nil && !errors.Is(err, errLost) {
				x.Errorf("%v", err)
			}
		})
	})
}
