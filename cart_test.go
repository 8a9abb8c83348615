package cohort

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// Coordinates and displacements beyond the ends go around in a periodic dimension, and lead to no rank in another.
func TestCartBeyondItsEnds(t *testing.T) {
	ranks(t, 7, func(w *Comm) error {
		dims := []int{2, 3}
		c := must.Get(w.CartCreate(dims, []bool{false, true}, false))
		if w.Rank() == 6 {
			if c != nil {
				t.Error("a rank the grid does not need has a place in it")
			}
			return nil
		}
		dims[0] = 9 // what was given is the caller's
		row, col := c.Rank()/3, c.Rank()%3
		if !slices.Equal(c.Dims(), []int{2, 3}) || !slices.Equal(c.Periods(), []bool{false, true}) || !slices.Equal(c.MyCoords(), []int{row, col}) {
			t.Errorf("dims %v, periods %v, rank %d at %v", c.Dims(), c.Periods(), c.Rank(), c.MyCoords())
		}
		if r, err := c.CartRank([]int{1, -4}); err != nil || r != 5 { // -4 = 2 mod 3
			t.Errorf("at [1 -4]: %d, %v", r, err)
		}
		for _, disp := range []int{-4, -3, -2, -1, 0, 1, 2, 3, 4, math.MaxInt, math.MaxInt - 1, math.MinInt, math.MinInt + 1} {
			inColumn := func(d int) int {
				if d < -row || d > 1-row {
					return ProcNull
				}
				return (row+d)*3 + col
			}
			from, to, err := c.Shift(0, disp)
			if err != nil || from != inColumn(-disp) || to != inColumn(disp) {
				t.Errorf("rank %d, rows by %d: %d → %d, %v", c.Rank(), disp, from, to, err)
			}
			around := func(d int) int { return row*3 + ((col+d)%3+3)%3 }
			from, to, err = c.Shift(1, disp)
			if err != nil || from != around(-(disp%3)) || to != around(disp%3) {
				t.Errorf("rank %d, columns by %d: %d → %d, %v", c.Rank(), disp, from, to, err)
			}
		}
		_, _, shift := c.Shift(2, 1)
		return errors.Join(wantErr("coordinates of rank 6", second(c.Coords(6)), ErrRank),
			wantErr("a row that the grid has not", second(c.CartRank([]int{2, 0})), ErrRank),
			wantErr("one coordinate", second(c.CartRank([]int{1})), ErrCount), wantErr("dimension 2", shift, ErrCount))
	})
}

func TestCartCreateRejectsBadGrids(t *testing.T) {
	ranks(t, 6, func(w *Comm) error {
		for what, f := range map[string]struct {
			dims    []int
			periods []bool
		}{
			"too large":       {[]int{7}, []bool{true}},
			"far too large":   {[]int{math.MaxInt / 2, math.MaxInt / 2, math.MaxInt / 2}, []bool{true, true, true}},
			"negative":        {[]int{-2, -3}, []bool{true, true}},
			"negative, zero":  {[]int{-2, 0}, []bool{true, true}},
			"periods missing": {[]int{2, 3}, []bool{true}},
			"not a multiple":  {[]int{4, 0}, []bool{true, true}},
			"filled too far":  {[]int{math.MaxInt/2 + 1, math.MaxInt/2 + 1, 0}, []bool{true, true, true}},
		} {
			_, err := w.CartCreate(f.dims, f.periods, false)
			if err := errors.Join(wantErr(what, err, ErrCount)); err != nil {
				t.Error(err)
			}
		}
		c, err := w.CartCreate([]int{0, 2}, []bool{true, true}, true)
		if err != nil || !slices.Equal(c.Dims(), []int{3, 2}) {
			return fmt.Errorf("filled: %w", err)
		}
		p, err := w.CartCreate(nil, nil, false) // a point: one rank
		if err != nil || (p != nil) != (w.Rank() == 0) {
			return fmt.Errorf("no dimensions: %v, %w", p, err)
		}
		return nil
	})
	err := Run(context.Background(), 4, func(w *Comm) error {
		_, err := w.CartCreate([]int{2, 2}, []bool{w.Rank() == 3, false}, false)
		return wantErr("other periods", err, ErrMismatch)
	})
	if err != nil {
		t.Error(err)
	}
}

// The examples of MPI-4.1, section 8.5.2, and the rule itself by exhaustive search.
func TestDimsCreateBalancesExtents(t *testing.T) {
	for _, c := range []struct {
		n        int
		in, want []int // want nil: an error
	}{
		{6, []int{0, 0}, []int{3, 2}}, {7, []int{0, 0}, []int{7, 1}}, {6, []int{0, 3, 0}, []int{2, 3, 1}}, {7, []int{0, 3, 0}, nil},
		{1, []int{0, 0, 0}, []int{1, 1, 1}}, {6, []int{2, 3}, []int{2, 3}}, {6, []int{2, 2}, nil}, {0, []int{0}, nil}, {-4, []int{0}, nil},
		{1 << 30, []int{0, 0, 0}, []int{1024, 1024, 1024}}, {1<<31 - 1, []int{0, 0, 0}, []int{1<<31 - 1, 1, 1}},
		{64, []int{0, 0, 0}, []int{4, 4, 4}}, {12, []int{0, 0}, []int{4, 3}}, {97, []int{0, 0}, []int{97, 1}},
	} {
		dims := slices.Clone(c.in)
		err := DimsCreate(c.n, dims)
		switch {
		case c.want == nil && (!errors.Is(err, ErrCount) || !slices.Equal(dims, c.in)):
			t.Errorf("%d on %v: %v, %v", c.n, c.in, dims, err)
		case c.want != nil && (err != nil || !slices.Equal(dims, c.want)):
			t.Errorf("%d on %v: %v, %v, want %v", c.n, c.in, dims, err, c.want)
		}
	}
	for n := 1; n <= 300; n++ {
		dims := []int{0, 0, 0}
		if err := DimsCreate(n, dims); err != nil || dims[0]*dims[1]*dims[2] != n || dims[0] < dims[1] || dims[1] < dims[2] {
			t.Fatalf("%d: %v, %v", n, dims, err)
		}
		for a := 1; a <= n; a++ {
			for b := 1; b <= a; b++ {
				if n%(a*b) == 0 && n/(a*b) <= b && a < dims[0] {
					t.Fatalf("%d: %v, but %d×%d×%d is closer", n, dims, a, b, n/(a*b))
				}
			}
		}
	}
}

// separated counts the pairs of neighbors on different nodes, from the coordinates.
func separated(dims []int, periods []bool, nodeAt func(number int) int) (sum int) {
	at := make([]int, len(dims))
	number := func() (n int) {
		for i, x := range at {
			n = n*dims[i] + x
		}
		return n
	}
	for {
		here := number()
		for i, d := range dims {
			if x := at[i]; x < d-1 || periods[i] {
				at[i] = (x + 1) % d
				if nodeAt(here) != nodeAt(number()) {
					sum++
				}
				at[i] = x
			}
		}
		i := len(dims) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < dims[i] {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return sum
		}
	}
}

// An order is a permutation with fewer neighbors on different nodes. Without one, no order by blocks is better.
func TestGridOrderPutsNeighborsOnOneNode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	better := 0
	for range 3000 {
		dims, periods := make([]int, 1+rng.IntN(3)), make([]bool, 3)
		for i := range dims {
			dims[i], periods[i] = 1+rng.IntN(6), rng.IntN(2) == 0
		}
		n := product(dims)
		per := 1 + rng.IntN(n)
		of := make([]int, n) // by rank
		for r := range of {
			of[r] = 7 * (r / per) // the last node may have fewer ranks
			if n%per == 0 && dims[0]%2 == 0 {
				of[r] = 7 * (r % (n / per)) // in turn
			}
		}
		nodeOf := func(rank int) int { return of[rank] }
		before := separated(dims, periods, nodeOf)
		if got := crossings(dims, periods, nodeOf); got != before {
			t.Fatalf("%v, periods %v, nodes %v: %d crossings, want %d", dims, periods, of, got, before)
		}
		order := gridOrder(dims, periods, nodeOf)
		if order == nil {
			if n%per == 0 && per > 1 && per < n {
				if b := bestBlock(dims, periods, per); b != nil && blockCrossings(dims, periods, b) < before {
					t.Fatalf("%v, periods %v, nodes %v: not reordered, blocks of %v would be better", dims, periods, of, b)
				}
			}
			continue
		}
		better++
		nodeAt := make([]int, n)
		for r, number := range order {
			nodeAt[number] = of[r]
		}
		for i, number := range slices.Sorted(slices.Values(order)) {
			if number != i {
				t.Fatalf("%v: %v is not a permutation", dims, order)
			}
		}
		after := separated(dims, periods, func(number int) int { return nodeAt[number] })
		if want := blockCrossings(dims, periods, bestBlock(dims, periods, per)); after >= before || after != want {
			t.Fatalf("%v, periods %v, nodes %v: %d neighbors on different nodes, before %d, want %d", dims, periods, of, after, before, want)
		}
	}
	if better < 100 {
		t.Errorf("only %d grids were reordered", better)
	}
}

// The examples of the documentation: known numbers of pairs on different nodes.
func TestGridOrderOfKnownGrids(t *testing.T) {
	for _, c := range []struct {
		dims          []int
		periodic      bool
		per           int
		before, after int // after 0: as before
	}{
		{[]int{4, 4}, false, 4, 12, 8},     // rows become squares of 2 x 2
		{[]int{4, 4}, true, 4, 16, 16},     // 4 borders of 4, or 2 borders of 4 in both dimensions
		{[]int{8, 8}, false, 16, 24, 16},   // two rows each; 4 x 4
		{[]int{4, 4, 4}, false, 8, 64, 48}, // 2 x 2 x 2
		{[]int{6}, false, 3, 1, 0},         // in order already
		{[]int{5, 2}, false, 4, 0, 0},      // 10 ranks on nodes of 4
	} {
		n := product(c.dims)
		periods := slices.Repeat([]bool{c.periodic}, len(c.dims))
		order := gridOrder(c.dims, periods, func(rank int) int { return rank / c.per })
		if order == nil {
			if c.after != 0 && c.after != c.before {
				t.Errorf("%v, %d a node: not reordered", c.dims, c.per)
			}
			continue
		}
		nodeAt := make([]int, n)
		for r, number := range order {
			nodeAt[number] = r / c.per
		}
		got := separated(c.dims, periods, func(number int) int { return nodeAt[number] })
		before := separated(c.dims, periods, func(number int) int { return number / c.per })
		if got != c.after || before != c.before {
			t.Errorf("%v, %d a node: %d pairs on different nodes, before %d; want %d and %d", c.dims, c.per, got, before, c.after, c.before)
		}
	}
}

// Ranks of a grid that is reordered exchange data with the right neighbors.
func TestCartReordersByNode(t *testing.T) {
	const n, per = 8, 4
	for _, reorder := range []bool{false, true} {
		onWorlds(t, n, settings{}, func(bc backend.Comm) backend.Comm { return &spread{bc, per} }, func(w *Comm) error {
			g := must.Get(w.CartCreate([]int{2, 4}, []bool{false, false}, reorder))
			where := g.Topology() // by ranks of the grid
			want := []int{0, 1, 2, 3}
			if reorder {
				want = []int{0, 1, 4, 5} // 2 columns of 2 rows
			}
			if len(where.Hosts) != 2 || !slices.Equal(where.Hosts[0].Ranks, want) {
				return fmt.Errorf("reorder %v: nodes %v, want %v first", reorder, where.Hosts, want)
			}
			got := slices.Repeat([]int{ProcNull}, 4)
			must.OK(NeighborAllgather(g, []int{g.Rank()}, got))
			for i, x := range g.Neighbors() {
				if got[2*i] != x.Lower || got[2*i+1] != x.Upper {
					return fmt.Errorf("reorder %v: neighbors %v, heard from %v", reorder, g.Neighbors(), got)
				}
			}
			return nil
		})
	}
}

// Of all factorizations of small numbers, in descending order, factorize returns the first that its comment describes.
func TestFactorizeChoosesFromAllFactorizations(t *testing.T) {
	for n := 1; n <= 400; n++ {
		for k := 1; k <= 5; k++ {
			var best []int
			var try func(left, limit int, f []int)
			try = func(left, limit int, f []int) {
				for d := limit; len(f) < k && d >= 1; d-- {
					if left%d == 0 {
						try(left/d, d, append(f, d))
					}
				}
				if len(f) == k && left == 1 && (best == nil || f[0] < best[0] || f[0] == best[0] && f[k-1] > best[k-1]) {
					best = slices.Clone(f)
				}
			}
			try(n, n, nil)
			if got := factorize(n, k); !slices.Equal(got, best) {
				t.Fatalf("%d factors of %d: got %v, want %v", k, n, got, best)
			}
		}
	}
}
