package lp

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestOrderDoesNotChangeBits solves the same programs in two orders with one solver, each from a fixed
// basis. In sddp the number of ranks decides this order. All results have the same bits.
func TestOrderDoesNotChangeBits(t *testing.T) { each(t, testOrderDoesNotChangeBits) }

func testOrderDoesNotChangeBits(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(61, 62))
	p := newDispatch(r)
	for range 60 {
		p.addCut(r, 0.5, nil)
	}
	s := p.load(mk)
	if status := prove(t, "without a past", &p.problem, s); status != Optimal {
		t.Fatalf("got %v", status)
	}
	canonical := s.Basis(Basis{})
	inflows := make([][]float64, 100)
	for k := range inflows {
		for range p.water {
			inflows[k] = append(inflows[k], 2e4+1.6e5*r.Float64()*r.Float64())
		}
	}
	solve := func(k int, basis *Basis) []uint64 {
		for i, row := range p.water {
			s.SetRHS(row, inflows[k][i])
		}
		if basis != nil {
			if err := s.SetBasis(*basis); err != nil {
				t.Fatal(err)
			}
		}
		status, err := s.Solve()
		if status != Optimal || err != nil {
			t.Fatal(status, err)
		}
		return bits(s, status)
	}
	// differing counts programs with other bits in the other order.
	differing := func(basis *Basis) (n int) {
		up := make([][]uint64, len(inflows))
		for k := range inflows {
			up[k] = solve(k, basis)
		}
		for k := len(inflows) - 1; k >= 0; k-- {
			if fmt.Sprint(solve(k, basis)) != fmt.Sprint(up[k]) {
				n++
			}
		}
		return n
	}
	if n := differing(&canonical); n > 0 {
		t.Errorf("%d of %d programs have other bits in reversed order", n, len(inflows))
	}
	if n := differing(nil); n == 0 {
		t.Error("from the previous basis, the order does not matter for these programs: the test shows nothing")
	}
}

// trace solves programs of all kinds and returns a hash of the bits of all results.
func trace(mk maker, seed uint64) (string, error) {
	r := rand.New(rand.NewPCG(seed, 63))
	h := fnv.New64a()
	for k, p := range oraclePrograms(r, sample(80)) {
		s := p.load(mk)
		for range 6 {
			status, err := s.Solve()
			if err != nil {
				return "", fmt.Errorf("program %d: %w", k, err)
			}
			fmt.Fprintln(h, bits(s, status))
			change(r, p, s)
		}
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

// TestThreadsDoNotChangeBits solves in several goroutines at once. Results have the bits of a single
// goroutine.
func TestThreadsDoNotChangeBits(t *testing.T) { each(t, testThreadsDoNotChangeBits) }

func testThreadsDoNotChangeBits(t *testing.T, mk maker) {
	var want [3]string
	for k := range want {
		var err error
		if want[k], err = trace(mk, uint64(k)); err != nil {
			t.Fatal(err)
		}
	}
	if want[0] == want[1] || want[1] == want[2] {
		t.Fatal("different programs have the same hash: the test shows nothing")
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			if got, err := trace(mk, uint64(g%len(want))); got != want[g%len(want)] {
				t.Errorf("goroutine %d: got %s, %v, want %s", g, got, err, want[g%len(want)])
			}
		})
	}
	wg.Wait()
}

// TestMemoryFillDoesNotChangeBits solves in processes whose C library fills allocated and freed memory with
// other bytes, to detect a solver that reads uninitialized memory.
func TestMemoryFillDoesNotChangeBits(t *testing.T) {
	const variable = "LP_TEST_TRACE"
	if kind := os.Getenv(variable); kind != "" {
		got, err := trace(open(t, kind), 7)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(got)
		return
	}
	each(t, func(t *testing.T, mk maker) {
		want, err := trace(mk, 7)
		if err != nil {
			t.Fatal(err)
		}
		kind := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		for _, fill := range []string{"0", "85", "255"} {
			child := exec.Command(os.Args[0], "-test.run=^TestMemoryFillDoesNotChangeBits$", fmt.Sprintf("-test.short=%v", testing.Short()))
			child.Env = append(os.Environ(), variable+"="+kind, "MALLOC_PERTURB_="+fill)
			out, err := child.CombinedOutput()
			if got, _, _ := strings.Cut(string(out), "\n"); err != nil || got != want {
				t.Errorf("memory filled with %s: got %v and\n%s\nwant %s", fill, err, out, want)
			}
		}
	})
}
