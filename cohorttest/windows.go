package cohorttest

import (
	"math"

	"github.com/cohort-hpc/cohort"
)

// Windows made by AllocateShared (MPI-4.1 section 12.2.3): what ranks write in each other's parts in place, and when
// the others see it. Misuse and failures are in windowmisuse.go.

func windowScenarios() []scenario {
	return []scenario{
		{name: "windows/capability", body: windowCapability},
		{name: "windows/parts", body: windowParts},
		{name: "windows/types", body: windowTypes},
		{name: "windows/rounds", body: windowRounds},
		{name: "windows/sync", body: windowSync},
		{name: "windows/split", body: windowsOfSplits},
		{name: "windows/many", body: manyWindows},
		{name: "windows/region", body: region},
		{name: "windows/regions-of-splits", body: regionsOfSplits},
		{name: "windows/readers", body: lockedReaders},
		{name: "windows/close", body: windowClose},
		{name: "windows/close-region", body: closeRegion},
		{name: "windows/arguments", body: windowArguments},
		{name: "windows/room", body: windowRoom},
		{name: "windows/one-copy", sizes: func(n int) bool { return n == 4 || n == 5 }, body: oneCopy},
		{name: "windows/allocations", sizes: func(n int) bool { return n <= 2 }, body: windowAllocations},
		{name: "mismatch/windows", sizes: atLeast(2), body: mismatchedWindows},
	}
}

// window makes a window of n elements on this rank, which is closed at the end.
func window[T any](r *Rank, c *cohort.Comm, n int) *cohort.Window[T] {
	w := must(cohort.AllocateShared[T](c, n))
	r.atEnd(w.Close)
	return w
}

// part returns the part of a rank.
func part[T any](r *Rank, w *cohort.Window[T], rank int) []T {
	return must(w.Remote(rank))
}

// windowCapability checks Caps().SharedMemory against what a window does: if
// another rank's part can be written, the backend shares memory.
func windowCapability(r *Rank) {
	node := must(r.Comm.SplitShared())
	if node.Size() > 1 {
		w := window[int32](r, node, 1)
		next := (node.Rank() + 1) % node.Size()
		part(r, w, next)[0] = int32(1 + node.Rank())
		r.OK(w.Fence())
		local := must(w.Local())
		writer := (node.Rank() + node.Size() - 1) % node.Size()
		shares := local[0] == int32(1+writer)
		if says := r.Comm.Caps().SharedMemory; says != shares {
			r.Errorf("Caps().SharedMemory is %v; rank %d's write to this rank's part is seen: %v", says, writer, shares)
		}
		r.OK(w.Fence())
		r.OK(w.Close())
	}
	r.OK(node.Close())
}

// kindWindow is a test of windows of one element type.
type kindWindow func(r *Rank, c *cohort.Comm, shape string, lengths []int)

// windowKinds are element types of every sort.
func windowKinds() []kindWindow {
	return []kindWindow{
		inWindow(float64s), inWindow(uint8s), inWindow(complex128s), inWindow(tickses), inWindow(packeds), inWindow(paddeds), inWindow(triples),
		inWindow(kind[bool]{name: "bool", elem: func(x int) bool { return x%2 == 1 }}),
		inWindow(kind[cohort.Float16]{name: "Float16", elem: func(x int) cohort.Float16 { return cohort.ToFloat16(float32(x)) }}),
		inWindow(kind[cohort.Loc[float32]]{name: "Loc", elem: func(x int) cohort.Loc[float32] { return cohort.Loc[float32]{Val: float32(x), Idx: int64(-x)} }}),
	}
}

// inWindow has each rank fill its part, and every rank read all parts.
func inWindow[T comparable](k kind[T]) kindWindow {
	return func(r *Rank, c *cohort.Comm, shape string, lengths []int) {
		what, mine := k.name+", "+shape, lengths[c.Rank()]
		w := window[T](r, c, mine)
		local := must(w.Local())
		if len(local) != mine || cap(local) != mine || local == nil {
			r.Errorf("%s: Local has %d of %d elements, want %d", what, len(local), cap(local), mine)
		}
		var zero T
		same(r, local, func(i int) T { return zero }, "%s: new", what)
		for i := range local {
			local[i] = k.elem(value(lengths[0], c.Rank(), i))
		}
		r.OK(w.Fence())
		for rank, n := range lengths {
			p := part(r, w, rank)
			if len(p) != n || cap(p) != n {
				r.Errorf("%s: rank %d's part has %d of %d elements, want %d", what, rank, len(p), cap(p), n)
				continue
			}
			same(r, p, func(i int) T { return k.elem(value(lengths[0], rank, i)) }, "%s: rank %d's part", what, rank)
		}
		r.OK(w.Fence()) // all have read all parts
	}
}

// windowParts has parts of different lengths, empty ones too, and elements of every
// sort.
func windowParts(r *Rank) {
	shapes := []struct {
		name string
		n    func(rank int) int
	}{
		{"different lengths", func(rank int) int { return 7 * rank }},
		{"nothing at all", func(int) int { return 0 }},
		{"the last rank's only", func(rank int) int { return (rank + 1) / r.Size * 1000 }},
		{"pages and one more", func(rank int) int { return 4096*(rank%2) + 1 }},
	}
	for i, test := range windowKinds() {
		for j, s := range shapes {
			if i == 0 || j == i%len(shapes) || !r.Short {
				test(r, r.Comm, s.name, each(r.Size, s.n))
			}
		}
	}
}

// windowTypes has element types that a window cannot have: an error on every rank, and
// the communicator stays usable.
func windowTypes(r *Rank) {
	badWindow[*int](r)
	badWindow[string](r)
	badWindow[[]int](r)
	badWindow[withPointer](r)
	badWindow[nothing](r)
	badWindow[[0]int](r)
	badWindow[[2]any](r)
	r.OK(r.Comm.Barrier())
}

func badWindow[T any](r *Rank) {
	var x T
	r.Is(errorOf(cohort.AllocateShared[T](r.Comm, 1)), cohort.ErrType, "AllocateShared of %T", x)
	r.Is(errorOf(cohort.NewWindow[T](r.Comm, 1)), cohort.ErrType, "NewWindow of %T", x)
	r.Is(errorOf(cohort.NewSharedRegion[T](r.Comm, 1)), cohort.ErrType, "NewSharedRegion of %T", x)
}

// windowRounds has each rank write the next rank's part, in many rounds.
func windowRounds(r *Rank) {
	rounds, n := 100, 300
	if r.Short {
		rounds = 25
	}
	w := window[int32](r, r.Comm, n)
	theirs := part(r, w, r.next)
	for round := range rounds {
		for i := range theirs {
			theirs[i] = int32(value(round, r.Rank, i))
		}
		r.OK(w.Fence())
		for rank := range r.Size {
			writer := (rank + r.Size - 1) % r.Size
			p := part(r, w, rank)
			same(r, p, func(i int) int32 { return int32(value(round, writer, i)) }, "round %d: rank %d's part", round, rank)
		}
		r.OK(w.Fence())
	}
}

// windowSync passes messages around the ring: after Sync, the receiver of a message sees
// what its sender had written before.
func windowSync(r *Rank) {
	rounds := 20
	w := window[int64](r, r.Comm, rounds)
	word := make([]int8, 1)
	for round := range rounds {
		if round > 0 || r.Rank > 0 {
			must(cohort.Recv(r.Comm, word, r.prev, 1))
		}
		r.OK(w.Sync())
		sum := int64(1)
		if r.Rank > 0 {
			sum += part(r, w, r.prev)[round]
		} else if round > 0 {
			sum += part(r, w, r.prev)[round-1]
		}
		local := must(w.Local())
		local[round] = sum
		r.OK(w.Sync())
		equal(r, sum, int64(round*r.Size+r.Rank+1), "round %d: the sum", round)
		r.OK(cohort.Send(r.Comm, word, r.next, 1))
	}
	if r.Rank == 0 {
		must(cohort.Recv(r.Comm, word, r.prev, 1))
	}
}

// windowsOfSplits has windows on two communicators of different ranks at the same time, each with another number of
// rounds, and one of all ranks beside them. They share no memory.
func windowsOfSplits(r *Rank) {
	all := window[int32](r, r.Comm, 10)
	mine := must(all.Local())
	for i := range mine {
		mine[i] = int32(r.Rank)
	}
	r.OK(all.Fence())
	half := must(r.Comm.Split(r.Rank%2, -r.Rank))
	r.atEnd(half.Close)
	for range 2 + r.Rank%2 {
		inWindow(int32s)(r, half, "half of the ranks", each(half.Size(), func(i int) int { return 3*i + r.Rank%2 }))
	}
	for rank := range r.Size {
		same(r, part(r, all, rank), func(int) int32 { return int32(rank) }, "rank %d's part beside other windows", rank)
	}
	r.OK(all.Fence())
}

// manyWindows makes and closes many windows, which must leave nothing behind.
func manyWindows(r *Rank) {
	k := 200
	switch {
	case r.Short:
		k = 12
	case r.Size > 3: // more ranks, more windows
		k = 40
	}
	const total = 4 << 20 // of one window
	n := total / 8 / r.Size
	cycle := func(i int) {
		w := must(cohort.AllocateShared[int64](r.Comm, n))
		local := must(w.Local())
		local[n-1] = int64(i)
		r.OK(w.Fence())
		equal(r, part(r, w, r.Size-1)[n-1], int64(i), "window %d", i)
		r.OK(w.Fence())
		r.OK(w.Close())
	}
	cycle(0) // what a library keeps for windows it has after the first one
	r.OK(r.Comm.Barrier())
	before := footprint(r)
	for i := range k {
		cycle(i)
	}
	r.OK(r.Comm.Barrier())
	footprint(r).compare(r, before, int64(k)*total/2)
	r.OK(r.Comm.Barrier())
}

// region has the leader fill a region, and then all ranks fill a range each. They read
// what was written, bit for bit.
func region(r *Rank) {
	n := 10007
	f := func(i int) float64 { return math.Sin(float64(i)) / 3 }
	g, err := cohort.NewSharedRegion[float64](r.Comm, n)
	r.OK(err)
	node := g.Node()
	if g.IsLeader() != (node.Rank() == 0) || r.Rank == 0 && !g.IsLeader() {
		r.Errorf("rank %d of its node is leader: %v", node.Rank(), g.IsLeader())
	}
	check := func(what string, want func(i int) float64) {
		r.OK(g.Fence())
		all := must(g.Slice())
		if len(all) != n || cap(all) != n {
			r.Errorf("%s: %d of %d elements, want %d", what, len(all), cap(all), n)
			return
		}
		for i, x := range all {
			if math.Float64bits(x) != math.Float64bits(want(i)) {
				r.Errorf("%s: element %d is %g, want %g", what, i, x, want(i))
				break
			}
		}
		r.OK(g.Fence())
	}
	check("a new region", func(int) float64 { return 0 })
	all := must(g.MutSlice())
	if want := map[bool]int{true: n}[g.IsLeader()]; len(all) != want || all == nil {
		r.Errorf("MutSlice has %d elements, want %d (leader %v)", len(all), want, g.IsLeader())
	}
	for i := range all {
		all[i] = f(i)
	}
	check("filled by the leader", f)
	lo, hi := n*node.Rank()/node.Size(), n*(node.Rank()+1)/node.Size()
	mine := must(g.Range(lo, hi))
	if len(mine) != hi-lo || cap(mine) != len(mine) {
		r.Errorf("Range(%d, %d) has %d of %d elements", lo, hi, len(mine), cap(mine))
	}
	for i := range mine {
		mine[i] = f(2*lo + i)
	}
	check("filled by all", func(i int) float64 {
		owner := 0
		for n*(owner+1)/node.Size() <= i {
			owner++
		}
		return f(n*owner/node.Size() + i)
	})
	for _, bad := range [][2]int{{-1, 2}, {2, 1}, {0, n + 1}, {n + 1, n + 1}, {math.MinInt, math.MaxInt}} {
		r.Is(errorOf(g.Range(bad[0], bad[1])), cohort.ErrBuffer, "Range(%d, %d)", bad[0], bad[1])
	}
	empty, err := g.Range(n, n)
	if err != nil || len(empty) != 0 {
		r.Errorf("Range(%d, %d): %d elements, %v", n, n, len(empty), err)
	}
	r.OK(g.Close())
}

// regionsOfSplits has regions on two communicators at a time, one of them empty.
func regionsOfSplits(r *Rank) {
	c := must(r.Comm.Split(r.Rank%2, 0))
	n := 100 * (r.Rank % 2)
	g := must(cohort.NewSharedRegion[int32](c, n))
	for i := range must(g.MutSlice()) {
		must(g.MutSlice())[i] = int32(n + i)
	}
	r.OK(g.Fence())
	all := must(g.Slice())
	if len(all) != n {
		r.Errorf("%d elements, want %d", len(all), n)
	}
	same(r, all, func(i int) int32 { return int32(n + i) }, "a region of %d", n)
	r.OK(g.Fence())
	r.OK(g.Close())
	r.OK(c.Close())
}
