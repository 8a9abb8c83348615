package cohorttest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// family is one collective: its definition and its three forms. define fills the buffers
// and sets what they must contain after the call. It is called again, with another seed,
// before each start of a persistent operation.
type family[T comparable] struct {
	name    string
	rooted  bool
	inPlace bool // can be called in place
	define  func(a *args[T])
	forms   [3]any                 // the functions, in the order of forms
	passed  func(a *args[T]) []any // their arguments after the communicator
	on      cohort.Neighborhood    // in place of the communicator, for neighborhood collectives
}

// has returns the forms that the collective has.
func (f family[T]) has() []form {
	if f.forms[1] == nil {
		return forms[:1]
	}
	return forms
}

// call calls the function of a form and returns its results. As soon as it has returned, the program may use its counts and
// displacements for something else.
func (f family[T]) call(form int, c *cohort.Comm, a *args[T]) []any {
	in := []reflect.Value{reflect.ValueOf(c)}
	if f.on != nil {
		in[0] = reflect.ValueOf(f.on)
	}
	var lent [][]int
	for _, x := range f.passed(a) {
		if counts, ok := x.([]int); ok && counts != nil && reflect.TypeFor[T]() != reflect.TypeFor[int]() { // else it may be a buffer
			counts = slices.Clone(counts)
			lent = append(lent, counts)
			x = counts
		}
		in = append(in, reflect.ValueOf(x))
	}
	out := reflect.ValueOf(f.forms[form]).Call(in)
	for _, counts := range lent {
		for i := range counts {
			counts[i] = -1
		}
	}
	return filled(len(out), func(i int) any { return out[i].Interface() })
}

func (f family[T]) start(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
	out := f.call(1, c, a)
	return out[0].(*cohort.Request), errorOf(out...)
}

func (f family[T]) setup(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
	out := f.call(2, c, a)
	return out[0].(*cohort.Persistent), errorOf(out...)
}

// once makes the call once in a form, and waits until it is complete.
func (f family[T]) once(how form, c *cohort.Comm, a *args[T]) error {
	switch how {
	case nonblocking:
		return wait(f.start(c, a))
	case persistent:
		return runOnce(f.setup(c, a))
	}
	return errorOf(f.call(0, c, a)...)
}

// moves are the collectives that only move data (MPI-4.1 sections 6.4 to 6.8).
func moves[T comparable]() []family[T] {
	vector := func(a *args[T]) []any { return []any{a.send, a.recv} }
	rooted := func(a *args[T]) []any { return []any{a.send, a.recv, a.root} }
	return []family[T]{
		{"Bcast", true, false, defineBcast[T], [3]any{cohort.Bcast[T], cohort.Ibcast[T], cohort.BcastInit[T]},
			func(a *args[T]) []any { return []any{a.recv, a.root} }, nil},
		{"Gather", true, true, defineGather[T], [3]any{cohort.Gather[T], cohort.Igather[T], cohort.GatherInit[T]}, rooted, nil},
		{"Gatherv", true, true, defineGatherv[T], [3]any{cohort.Gatherv[T], cohort.Igatherv[T], cohort.GathervInit[T]},
			func(a *args[T]) []any { return []any{a.send, a.recv, a.rcounts, a.rdispls, a.root} }, nil},
		{"Allgather", false, true, defineAllgather[T], [3]any{cohort.Allgather[T], cohort.Iallgather[T], cohort.AllgatherInit[T]}, vector, nil},
		{"Allgatherv", false, true, defineAllgatherv[T], [3]any{cohort.Allgatherv[T], cohort.Iallgatherv[T], cohort.AllgathervInit[T]},
			func(a *args[T]) []any { return []any{a.send, a.recv, a.rcounts, a.rdispls} }, nil},
		{"Scatter", true, true, defineScatter[T], [3]any{cohort.Scatter[T], cohort.Iscatter[T], cohort.ScatterInit[T]}, rooted, nil},
		{"Scatterv", true, true, defineScatterv[T], [3]any{cohort.Scatterv[T], cohort.Iscatterv[T], cohort.ScattervInit[T]},
			func(a *args[T]) []any { return []any{a.send, a.scounts, a.sdispls, a.recv, a.root} }, nil},
		{"Alltoall", false, true, defineAlltoall[T], [3]any{cohort.Alltoall[T], cohort.Ialltoall[T], cohort.AlltoallInit[T]}, vector, nil},
		{"Alltoallv", false, true, defineAlltoallv[T], [3]any{cohort.Alltoallv[T], cohort.Ialltoallv[T], cohort.AlltoallvInit[T]}, passesParts[T], nil},
	}
}

// appendings are the collectives that find out the counts, and allocate what they receive. Each has one form.
func appendings[T comparable]() []family[T] {
	type comm = *cohort.Comm
	itself := func(a *args[T]) []any { return []any{a} }
	return []family[T]{
		{"GathervAppend", true, false, defineGathervAppend[T], [3]any{func(c comm, a *args[T]) error {
			return a.allocated(cohort.GathervAppend(c, nil, a.send, a.root))
		}}, itself, nil},
		{"AllgathervAppend", false, false, defineAllgathervAppend[T], [3]any{func(c comm, a *args[T]) error {
			return a.allocated(cohort.AllgathervAppend(c, nil, a.send))
		}}, itself, nil},
		{"AlltoallvAppend", false, false, defineAlltoallvAppend[T], [3]any{func(c comm, a *args[T]) error {
			return a.allocated(cohort.AlltoallvAppend(c, nil, a.send, a.scounts))
		}}, itself, nil},
	}
}

// allocated checks the counts that a collective returns, and puts the elements into recv, where they are compared.
func (a *args[T]) allocated(got []T, counts []int, err error) error {
	if err == nil && (len(got) != len(a.recv) || a.recv == nil && got != nil || !slices.Equal(counts, a.rcounts)) {
		err = fmt.Errorf("got %d elements with counts %v, want %d with %v", len(got), counts, len(a.recv), a.rcounts)
	}
	copy(a.recv, got)
	return err
}

func passesParts[T comparable](a *args[T]) []any {
	return []any{a.send, a.scounts, a.sdispls, a.recv, a.rcounts, a.rdispls}
}

func defineBcast[T comparable](a *args[T]) {
	a.buffers(-1, a.m)
	if a.rank == a.root {
		a.put(a.recv, a.rank, 0)
	}
	a.images()
	a.expect(0, a.m, a.root, 0)
}

// layout returns where blocks of the given lengths begin, and the length of their buffer.
type layout = func(counts []int) (displs []int, n int)

// equal returns the lengths of blocks that are all of length m.
func (a *args[T]) equal() []int { return each(a.size, func(int) int { return a.m }) }

// gathers defines a call in which this rank sends a block, and receives a block of each rank or none.
func (a *args[T]) gathers(receives bool, counts []int, where layout) (displs []int) {
	displs, n := where(counts)
	mine := counts[a.rank]
	switch {
	case !receives:
		a.buffers(mine, -1)
		a.put(a.send, a.rank, 0)
	case a.inPlace(a.rank):
		a.same(n)
		a.put(a.recv[displs[a.rank]:][:mine], a.rank, 0)
	default:
		a.buffers(mine, n)
		a.put(a.send, a.rank, 0)
	}
	a.images()
	for r := 0; receives && r < a.size; r++ {
		a.expect(displs[r], counts[r], r, 0)
	}
	return displs
}

func defineGather[T comparable](a *args[T])    { a.gathers(a.rank == a.root, a.equal(), forwards) }
func defineAllgather[T comparable](a *args[T]) { a.gathers(true, a.equal(), forwards) }

func defineGatherv[T comparable](a *args[T])       { a.gathersParts(a.laidOut(backwards, a.root)) }
func defineGathervAppend[T comparable](a *args[T]) { a.gathersParts(forwards) }

// dense reports whether a rank's buffer has the blocks in order without gaps, for which a call gets no displacements. A
// call in place has gaps: a slice without elements would not say that it is in place.
func (a *args[T]) dense(rank int) bool { return a.empty(rank) || rank%2 == 1 && !a.inPlace(rank) }

// laidOut returns the layout of a rank's buffer.
func (a *args[T]) laidOut(where layout, rank int) layout {
	if a.dense(rank) {
		return forwards
	}
	return where
}

// given returns the displacements that a call gets for a rank's buffer.
func (a *args[T]) given(displs []int, rank int) []int {
	if a.dense(rank) {
		return nil
	}
	return displs
}

// gathersParts defines a call in which the root receives blocks of different lengths.
func (a *args[T]) gathersParts(where layout) {
	counts := each(a.size, a.ragged)
	displs := a.gathers(a.rank == a.root, counts, where)
	if a.rcounts, a.rdispls = nil, nil; a.rank == a.root {
		a.rcounts, a.rdispls = counts, a.given(displs, a.root)
	}
}

// The displacements of Allgatherv may differ between ranks.
func defineAllgatherv[T comparable](a *args[T]) {
	a.rcounts = each(a.size, a.ragged)
	a.rdispls = a.given(a.gathers(true, a.rcounts, a.laidOut(backwards, a.rank)), a.rank)
}

func defineAllgathervAppend[T comparable](a *args[T]) {
	a.rcounts = each(a.size, a.ragged)
	a.gathers(true, a.rcounts, forwards)
}

// scatters defines a call in which every rank receives a block of the root.
func (a *args[T]) scatters(counts []int, where layout) (displs []int) {
	displs, n := where(counts)
	switch {
	case a.rank != a.root:
		a.buffers(-1, counts[a.rank])
	case a.inPlace(a.rank):
		a.same(n)
		a.put(a.send, a.root, 0)
	default:
		a.buffers(n, counts[a.rank])
		a.put(a.send, a.root, 0)
	}
	a.images()
	if a.rank != a.root || !a.inPlace(a.rank) {
		a.expect(0, counts[a.rank], a.root, displs[a.rank])
	}
	return displs
}

func defineScatter[T comparable](a *args[T]) { a.scatters(a.equal(), forwards) }

// Every block of Scatterv begins one element before the end of the previous one: reading
// an element twice is allowed.
func defineScatterv[T comparable](a *args[T]) {
	counts := each(a.size, a.ragged)
	displs := a.scatters(counts, a.laidOut(func(counts []int) (displs []int, n int) {
		end := 0
		for _, c := range counts {
			displs = append(displs, max(end-1, 0))
			end = max(end-1, 0) + c
			n = max(n, end+1)
		}
		return displs, n
	}, a.root))
	if a.scounts, a.sdispls = nil, nil; a.rank == a.root {
		a.scounts, a.sdispls = counts, a.given(displs, a.root)
	}
}

// exchanges defines a call in which every rank sends a block to each rank.
func (a *args[T]) exchanges(count func(from, to int) int, where layout) {
	sends := func(rank int) ([]int, []int, int) {
		counts := each(a.size, func(to int) int { return count(rank, to) })
		displs, n := a.laidOut(where, rank)(counts)
		return counts, displs, n
	}
	var ns, nr int
	a.scounts, a.sdispls, ns = sends(a.rank)
	a.rcounts = each(a.size, func(from int) int { return count(from, a.rank) })
	if a.inPlace(a.rank) {
		a.rdispls, a.scounts, a.sdispls = a.sdispls, nil, nil
		a.same(ns)
	} else {
		a.rdispls, nr = forwards(a.rcounts)
		a.buffers(ns, nr)
	}
	a.put(a.send, a.rank, 0)
	a.images()
	for r := range a.size {
		_, displs, _ := sends(r)
		a.expect(a.rdispls[r], a.rcounts[r], r, displs[a.rank])
	}
	a.sdispls, a.rdispls = a.given(a.sdispls, a.rank), a.given(a.rdispls, a.rank)
}

func defineAlltoall[T comparable](a *args[T]) {
	a.exchanges(func(_, _ int) int { return a.m }, forwards)
}

// If a rank works in place, two ranks send each other the same length. Otherwise rank i sends rank j
// another length than j sends i.
func defineAlltoallv[T comparable](a *args[T]) {
	if a.place == apart {
		a.exchanges(a.uneven, backwards)
		return
	}
	a.exchanges(func(from, to int) int {
		if a.empty(from) || a.empty(to) {
			return 0
		}
		return (from + to) % 3 * a.m / 2
	}, backwards)
}

func defineAlltoallvAppend[T comparable](a *args[T]) { a.exchanges(a.uneven, forwards) }

// uneven returns how many elements a rank sends to another, which sends back another number. Some send none.
func (a *args[T]) uneven(from, to int) int { return (2*from + to + 1) % 4 * a.m / 3 }
