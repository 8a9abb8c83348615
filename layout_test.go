package cohort

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// disjoint finds views that share an element, in one array or none, of whatever layouts.
func TestDisjointFindsSharedElements(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	shared := 0
	for range 3000 {
		arrays := [][]int16{make([]int16, 300), make([]int16, 300)}
		used := make(map[*int16]bool)
		views, want := make([]View[int16], 2+rng.IntN(4)), false
		for i := range views {
			from := rng.IntN(100)
			buf := arrays[rng.IntN(2)][from:]
			var l Layout
			switch rng.IntN(3) {
			case 0:
				l = Vector(rng.IntN(20), 1+rng.IntN(3), 3+rng.IntN(6))
			case 1:
				l = Indexed([]int{rng.IntN(70), rng.IntN(3), 1}, []int{80, rng.IntN(70), 77})
			default:
				l = Subarray([]int{5, 6, 6}, []int{1 + rng.IntN(3), 1 + rng.IntN(2), 1 + rng.IntN(2)}, []int{rng.IntN(2), rng.IntN(4), rng.IntN(4)})
			}
			views[i] = ViewOf(buf, l)
			for at, n := range l.Blocks() {
				for j := range n {
					want = want || used[&buf[at+j]]
					used[&buf[at+j]] = true
				}
			}
		}
		if err := disjoint(views); (err != nil) != want || want && !errors.Is(err, ErrBuffer) {
			t.Fatalf("%v: %v, shared elements: %v", views, err, want)
		}
		if want {
			shared++
		}
	}
	if shared < 300 || shared > 2700 {
		t.Errorf("%d of 3000 cases share elements", shared)
	}
}

// indices returns the elements of a layout, by the definitions of MPI-4.1 section 5.1.2.
func vectorIndices(count, blocklen, stride int) (at []int) {
	for i := range count {
		for j := range blocklen {
			at = append(at, i*stride+j)
		}
	}
	return at
}

func indexedIndices(blocklens, displs []int) (at []int) {
	for i, n := range blocklens {
		for j := range n {
			at = append(at, displs[i]+j)
		}
	}
	return at
}

// subarrayIndices walks through the whole array and keeps what is inside the part.
func subarrayIndices(sizes, subsizes, starts []int) (at []int) {
	n := 1
	for _, s := range sizes {
		n *= s
	}
	for i := range n {
		inside, rest := true, i
		for d := len(sizes) - 1; d >= 0; d-- {
			x := rest % sizes[d]
			rest /= sizes[d]
			inside = inside && x >= starts[d] && x < starts[d]+subsizes[d]
		}
		if inside {
			at = append(at, i)
		}
	}
	return at
}

// checkLayout packs and unpacks a layout and compares both with its elements.
func checkLayout(t *testing.T, what string, l Layout, want []int) {
	t.Helper()
	n := 3
	if len(want) > 0 {
		n = slices.Max(want) + 3
	}
	buf := make([]int, n)
	for i := range buf {
		buf[i] = i
	}
	v := ViewOf(buf, l)
	var at []int
	for displ, n := range l.Blocks() {
		for i := range n {
			at = append(at, displ+i)
		}
	}
	if !slices.Equal(at, want) || l.Len() != len(want) || l.Err() != nil {
		t.Fatalf("%s: Blocks has the elements %v of %d, %v; want %v", what, at, l.Len(), l.Err(), want)
	}
	packed := make([]int, len(want))
	if err := v.Pack(packed); err != nil || v.Len() != len(want) || !slices.Equal(packed, want) {
		t.Fatalf("%s: %v; %d elements %v, want %v", what, err, v.Len(), packed, want)
	}
	for m := range len(want) + 1 { // shorter ones too
		if m > 5 && m < len(want) {
			continue
		}
		clear(buf)
		image := make([]int, n)
		for i := range m {
			packed[i] = i + 1
			image[want[i]] = i + 1
		}
		if err := v.Unpack(packed[:m]); err != nil || !slices.Equal(buf, image) {
			t.Fatalf("%s: %v; unpacking %d elements gives %v, want %v", what, err, m, buf, image)
		}
	}
	if len(want) > 0 {
		if err := ViewOf(buf[:slices.Max(want)], l).Pack(packed); !errors.Is(err, ErrBuffer) {
			t.Errorf("%s in a slice that is too short: %v, want ErrBuffer", what, err)
		}
		if err := v.Pack(packed[1:]); !errors.Is(err, ErrCount) {
			t.Errorf("%s packed into too short a slice: %v, want ErrCount", what, err)
		}
	}
	if err := v.Unpack(make([]int, len(want)+1)); !errors.Is(err, ErrCount) {
		t.Errorf("%s unpacked from too long a slice: %v, want ErrCount", what, err)
	}
}

func TestLayoutsHaveTheElementsOfTheStandard(t *testing.T) {
	for count := range 5 {
		for blocklen := range 4 {
			for stride := blocklen; stride < 7; stride++ {
				checkLayout(t, fmt.Sprintf("Vector(%d, %d, %d)", count, blocklen, stride), Vector(count, blocklen, stride), vectorIndices(count, blocklen, stride))
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		dims := 1 + rng.IntN(4)
		sizes, subsizes, starts := make([]int, dims), make([]int, dims), make([]int, dims)
		for d := range sizes {
			sizes[d] = 1 + rng.IntN(5)
			starts[d] = rng.IntN(sizes[d])
			subsizes[d] = rng.IntN(sizes[d] - starts[d] + 1)
			if rng.IntN(2) == 0 {
				starts[d], subsizes[d] = 0, sizes[d] // blocks that are one
			}
		}
		checkLayout(t, fmt.Sprintf("Subarray(%v, %v, %v)", sizes, subsizes, starts), Subarray(sizes, subsizes, starts), subarrayIndices(sizes, subsizes, starts))
		lens, displs, at := make([]int, dims), make([]int, dims), 0
		for i := range lens {
			lens[i], displs[i] = rng.IntN(4), at+rng.IntN(3)
			at = displs[i] + lens[i]
		}
		rng.Shuffle(dims, func(i, j int) { lens[i], lens[j], displs[i], displs[j] = lens[j], lens[i], displs[j], displs[i] })
		checkLayout(t, fmt.Sprintf("Indexed(%v, %v)", lens, displs), Indexed(lens, displs), indexedIndices(lens, displs))
	}
	checkLayout(t, "the zero Layout", Layout{}, nil)
}

// A layout that is packed or unpacked from any element on has the elements that it has as a whole.
func TestPartsOfLayoutsAreThoseOfTheWhole(t *testing.T) {
	for what, l := range map[string]Layout{
		"blocks":     Vector(5, 3, 4),
		"elements":   Vector(7, 1, 3),
		"contiguous": Vector(1, 9, 9),
		"no dims":    Subarray(nil, nil, nil),
		"three dims": Subarray([]int{4, 5, 6}, []int{3, 2, 4}, []int{1, 2, 1}),
		"last one 1": Subarray([]int{4, 5, 6}, []int{3, 4, 1}, []int{1, 0, 5}),
		"indexed":    Indexed([]int{0, 3, 0, 1, 4, 0}, []int{9, 5, 0, 30, 10, 1}),
	} {
		buf, whole := make([]int, 200), make([]int, l.n)
		for i := range buf {
			buf[i] = i
		}
		move(&l, whole, buf, 0, false)
		for first := range l.n + 1 {
			for end := first; end <= l.n; end++ {
				part, image := make([]int, end-first), make([]int, len(buf))
				move(&l, part, buf, first, false)
				move(&l, part, image, first, true)
				if !slices.Equal(part, whole[first:end]) {
					t.Fatalf("%s: elements %d to %d are %v of %v", what, first, end, part, whole)
				}
				for i, x := range image {
					if want := slices.Contains(part, i) && i > 0; x != 0 && x != i || want != (x == i && x > 0) {
						t.Fatalf("%s: unpacking elements %d to %d writes %d at %d", what, first, end, x, i)
					}
				}
			}
		}
	}
}

func TestWrongLayoutsAreErrCount(t *testing.T) {
	const huge = math.MaxInt
	for i, l := range []Layout{
		Vector(-1, 1, 1), Vector(1, -1, 1), Vector(2, 3, 2), Vector(2, 1, -1), Vector(2, 1, 0), Vector(huge, 2, huge), Vector(2, 1, huge),
		Indexed([]int{1}, nil), Indexed([]int{-1}, []int{0}), Indexed([]int{1}, []int{-1}), Indexed([]int{2, 1}, []int{0, 1}), Indexed([]int{huge}, []int{1}),
		Subarray([]int{3}, []int{1, 1}, []int{0}), Subarray([]int{3}, []int{3}, []int{1}), Subarray([]int{3}, []int{-1}, []int{0}),
		Subarray([]int{3}, []int{0}, []int{4}), Subarray([]int{huge, huge}, []int{1, 1}, []int{0, 0}),
	} {
		if err := ViewOf(make([]byte, 9), l).Pack(make([]byte, 9)); !errors.Is(err, ErrCount) {
			t.Errorf("layout %d: %v, want ErrCount", i, err)
		}
	}
	for _, sizes := range [][]int{{0, huge, huge}, {huge, 0, huge}, {huge, huge, 0}} { // no elements, in any order
		if l := Subarray(sizes, []int{0, 0, 0}, []int{0, 0, 0}); l.Err() != nil || l.Len() != 0 {
			t.Errorf("no part of an array of sizes %v: %d elements, %v", sizes, l.Len(), l.Err())
		}
	}
	// Layouts that only a slice can show to be wrong.
	for i, l := range []Layout{Vector(2, 1, huge-1), Vector(huge, 1, 1), Vector(huge/2, 1, 2), Indexed([]int{1}, []int{huge - 1})} {
		if err := ViewOf(make([]byte, 9), l).Pack(make([]byte, 9)); !errors.Is(err, ErrBuffer) {
			t.Errorf("layout %d outside its slice: %v, want ErrBuffer", i, err)
		}
	}
}

// A layout of numbers of any size has an error, or all its elements have an index that an int can count.
func TestLayoutsEndWhereAnIntCanCount(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	number := func() int { return rng.IntN(6) + rng.IntN(2)*(math.MaxInt>>rng.IntN(64)-5) }
	limit := big.NewInt(math.MaxInt)
	sum := func(a *big.Int, x, y int) { // a += x*y
		a.Add(a, new(big.Int).Mul(big.NewInt(int64(x)), big.NewInt(int64(y))))
	}
	inside, beyond := 0, 0
	for range 20000 {
		count, blocklen, stride := number(), number(), number()
		var end big.Int
		sum(&end, count-1, stride)
		sum(&end, blocklen, 1)
		bad := count < 0 || blocklen < 0 || count > 1 && stride < blocklen || count > 0 && blocklen > 0 && end.Cmp(limit) > 0
		l := Vector(count, blocklen, stride)
		if (l.Err() != nil) != bad {
			t.Fatalf("Vector(%d, %d, %d): %v; its last block ends at %v", count, blocklen, stride, l.Err(), &end)
		}
		if bad {
			beyond++
		} else if _, hi := l.extent(); l.Len() > 0 {
			if inside++; int64(hi) != end.Int64() {
				t.Fatalf("Vector(%d, %d, %d) ends at %d, want %v", count, blocklen, stride, hi, &end)
			}
		}

		sizes, subsizes, starts := make([]int, 3), make([]int, 3), make([]int, 3)
		for d := range sizes {
			sizes[d], subsizes[d] = number(), 1+rng.IntN(2)
			starts[d] = max(0, sizes[d]-subsizes[d]) // the last elements
		}
		lens, displs := []int{number(), number()}, []int{number(), number()}
		for _, l := range []Layout{Subarray(sizes, subsizes, starts), Indexed(lens, displs)} {
			for at, n := range l.Blocks() {
				if at < 0 || n > math.MaxInt-at {
					t.Fatalf("Subarray(%v, %v, %v) or Indexed(%v, %v) has %d elements at %d", sizes, subsizes, starts, lens, displs, n, at)
				}
			}
		}
	}
	if inside < 1000 || beyond < 1000 {
		t.Errorf("%d vectors of int indices, %d others", inside, beyond)
	}
}

// SendView and RecvView of layouts that are ready do not allocate.
func TestViewsDoNotAllocate(t *testing.T) {
	if racing {
		t.Skip("the race detector drops pooled objects")
	}
	ranks(t, 1, func(w *Comm) error {
		matrix := make([]float64, 64)
		from, to := ViewOf(matrix, Vector(8, 1, 8)), ViewOf(matrix[1:], Vector(8, 1, 8))
		var err error
		n := testing.AllocsPerRun(100, func() {
			_, e := SendrecvView(w, from, 0, 1, to, 0, 1)
			err = errors.Join(err, e, SendView(w, from, ProcNull, 0))
		})
		if n > 0 {
			t.Errorf("%g allocations", n)
		}
		return err
	})
}
