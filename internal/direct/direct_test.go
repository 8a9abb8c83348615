package direct

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/directtest"
)

// table is a collective among goroutines: the simplest thing that keeps the
// promises of Peers. With fetch set nothing can be read in place; with copies
// set the inputs were copied before.
type table struct {
	calls  []*backend.Call
	fetch  bool
	copies [][]byte

	mu      sync.Mutex
	changed sync.Cond
	arrived int
	round   int
	bad     []error
	verdict error
	work    [][]byte
	meets   int
}

type seat struct {
	*table
	rank int
}

func newTable(calls []*backend.Call, fetch bool) *table {
	t := &table{calls: calls, fetch: fetch, bad: make([]error, len(calls)), work: make([][]byte, len(calls))}
	t.changed.L = &t.mu
	return t
}

func (s seat) bytes(rank int, from Space) []byte {
	switch {
	case from == Work:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.work[rank]
	case from == Out:
		return s.calls[rank].Recv
	case s.copies != nil:
		return s.copies[rank]
	}
	return Input(s.calls[rank], rank)
}

func (s seat) Read(rank int, from Space, off int, dst []byte) ([]byte, error) {
	b := s.bytes(rank, from)[off : off+len(dst)]
	if s.fetch {
		copy(dst, b)
		return dst, nil
	}
	return b, nil
}

func (s seat) Block(rank, to int) (off, n int, err error) {
	off, n = Outgoing(s.calls[rank], rank, to)
	return off, n, nil
}

func (s seat) Over() error { return nil }

func (s seat) Fails(error, bool) {}

func (s seat) Sync(work []byte, bad error) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bad[s.rank] = bad; work != nil { // else others may be reading what there is
		t.work[s.rank] = work
	}
	if t.arrived++; t.arrived == len(t.calls) {
		t.verdict = nil
		for _, err := range t.bad {
			if t.verdict == nil {
				t.verdict = err
			}
		}
		t.arrived = 0
		t.round++
		t.meets++
		t.changed.Broadcast()
		return t.verdict
	}
	for round := t.round; round == t.round; {
		t.changed.Wait()
	}
	return t.verdict
}

// play runs the calls and returns the ranks' errors.
func play(t *table, inSlots bool, scratch []Scratch) []error {
	errs := make([]error, len(t.calls))
	var wg sync.WaitGroup
	for r, c := range t.calls {
		wg.Go(func() {
			errs[r] = Run(c, r, len(t.calls), seat{t, r}, &scratch[r], inSlots)
		})
	}
	wg.Wait()
	return errs
}

func TestCollectives(t *testing.T) {
	ranks, counts := []int{1, 2, 3, 4, 5, 7, 8}, []int{0, 1, 3, 64, 1001, 9001}
	if testing.Short() {
		ranks, counts = []int{1, 2, 5}, []int{0, 3, 1001}
	}
	scratch := make([]Scratch, 8) // used by one after the other
	for _, c := range directtest.Cases(ranks, counts) {
		for _, mode := range []string{"view", "fetch", "posted"} {
			trial := directtest.New(c)
			table := newTable(trial.Calls, mode == "fetch")
			if mode == "posted" {
				if !FitsSlot(trial.Calls[0], c.Ranks, 1<<30) {
					continue
				}
				for r, call := range trial.Calls {
					table.copies = append(table.copies, append([]byte{}, Input(call, r)...))
				}
			}
			for r, err := range play(table, mode == "posted", scratch) {
				if err != nil {
					t.Fatalf("%s: %v: rank %d: %v", mode, c, r, err)
				}
			}
			if err := trial.Check(); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			if mode == "posted" && table.meets > 0 {
				t.Fatalf("%v: met though the inputs were copies", c)
			}
		}
	}
}

func TestCombine(t *testing.T) {
	for _, coll := range []backend.Coll{backend.Allreduce, backend.Reduce} {
		for n := 1; n <= 9; n++ {
			for _, op := range []*backend.Op{directtest.Sum, directtest.Product} {
				trial := directtest.New(directtest.Case{Coll: coll, Ranks: n, Count: 50, Root: 0, Op: op})
				table := newTable(trial.Calls, false)
				var s Scratch
				for r, c := range trial.Calls {
					if c.Recv == nil {
						continue
					}
					if err := Combine(c, r, n, seat{table, r}, &s, c.Recv); err != nil {
						t.Fatal(err)
					}
				}
				if err := trial.Check(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Every rank gets the same mismatch, which names both ranks and what they said,
// and nothing is written past a buffer.
func TestLengthMismatch(t *testing.T) {
	const ranks = 4
	for _, c := range []struct {
		coll  backend.Coll
		spoil func(calls []*backend.Call)
		words []string
	}{
		{backend.Gatherv, func(calls []*backend.Call) { calls[2].Send = calls[2].Send[:8] },
			[]string{"rank 2 sent 1 elements,", "rank 1 expects 2"}},
		{backend.Gatherv, func(calls []*backend.Call) { calls[1].RecvCounts[3] = 1 },
			[]string{"rank 3 sent 4 elements", "rank 1 expects 1"}},
		{backend.Scatterv, func(calls []*backend.Call) { calls[3].Recv = calls[3].Recv[:16] },
			[]string{"rank 1 sent 4 elements", "rank 3 expects 2"}},
		{backend.Alltoallv, func(calls []*backend.Call) { calls[3].SendCounts[0]++ },
			[]string{"rank 3 sent 1 elements,", "rank 0 expects 0"}},
		{backend.Alltoallv, func(calls []*backend.Call) { calls[2].RecvCounts[3]--; calls[3].RecvCounts[0]++ },
			[]string{"rank 3 sent 4 elements", "rank 2 expects 3"}},
	} {
		for _, fetch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/fetch=%v", c.coll, fetch), func(t *testing.T) {
				trial := directtest.New(directtest.Case{Coll: c.coll, Ranks: ranks, Count: 4, Root: 1, Op: directtest.Sum})
				c.spoil(trial.Calls)
				errs := play(newTable(trial.Calls, fetch), false, make([]Scratch, ranks))
				for r, err := range errs {
					if !errors.Is(err, backend.ErrMismatch) {
						t.Fatalf("rank %d: %v, want a mismatch", r, err)
					}
					if err.Error() != errs[0].Error() {
						t.Errorf("rank %d says %q, rank 0 %q", r, err, errs[0])
					}
				}
				for _, w := range c.words {
					if !strings.Contains(errs[0].Error(), w) {
						t.Errorf("%q does not say %q", errs[0], w)
					}
				}
			})
		}
	}
}

// FitsSlot must depend only on what the calls of all ranks have in common.
func TestFitsSlotIsTheSameOnAllRanks(t *testing.T) {
	sizes := []int{1, 3, 8}
	if testing.Short() {
		sizes = []int{1, 3}
	}
	for _, c := range directtest.Cases(sizes, []int{0, 1, 16, 512, 513}) {
		trial := directtest.New(c)
		for _, limit := range []int{0, 8, 4096} {
			want := FitsSlot(trial.Calls[0], c.Ranks, limit)
			for r, call := range trial.Calls {
				if got := FitsSlot(call, c.Ranks, limit); got != want {
					t.Fatalf("%v: rank %d says %v, rank 0 %v", c, r, got, want)
				}
				if n := len(Input(call, r)); want && n > limit {
					t.Fatalf("%v: rank %d has %d bytes to post, the limit is %d", c, r, n, limit)
				}
			}
		}
	}
}
