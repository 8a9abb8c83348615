package cohorttest

import "github.com/cohort-hpc/cohort"

// family is one collective: its definition and its three forms. define fills the buffers
// and sets what they must contain after the call. It is called again, with another seed,
// before each start of a persistent operation.
type family[T comparable] struct {
	name    string
	rooted  bool
	inPlace bool // can be called in place
	define  func(a *args[T])

	block func(c *cohort.Comm, a *args[T]) error
	start func(c *cohort.Comm, a *args[T]) (*cohort.Request, error)
	setup func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error)
}

// moves are the collectives that only move data (MPI-4.1 sections 6.4 to 6.8).
func moves[T comparable]() []family[T] {
	return []family[T]{
		{
			"Bcast", true, false, defineBcast[T],
			func(c *cohort.Comm, a *args[T]) error { return cohort.Bcast(c, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) { return cohort.Ibcast(c, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.BcastInit(c, a.recv, a.root)
			},
		},
		{
			"Gather", true, true, defineGather[T],
			func(c *cohort.Comm, a *args[T]) error { return cohort.Gather(c, a.send, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Igather(c, a.send, a.recv, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.GatherInit(c, a.send, a.recv, a.root)
			},
		},
		{
			"Gatherv", true, true, defineGatherv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Gatherv(c, a.send, a.recv, a.rcounts, a.rdispls, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Igatherv(c, a.send, a.recv, a.rcounts, a.rdispls, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.GathervInit(c, a.send, a.recv, a.rcounts, a.rdispls, a.root)
			},
		},
		{
			"Allgather", false, true, defineAllgather[T],
			func(c *cohort.Comm, a *args[T]) error { return cohort.Allgather(c, a.send, a.recv) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Iallgather(c, a.send, a.recv)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.AllgatherInit(c, a.send, a.recv)
			},
		},
		{
			"Allgatherv", false, true, defineAllgatherv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Allgatherv(c, a.send, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Iallgatherv(c, a.send, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.AllgathervInit(c, a.send, a.recv, a.rcounts, a.rdispls)
			},
		},
		{
			"Scatter", true, true, defineScatter[T],
			func(c *cohort.Comm, a *args[T]) error { return cohort.Scatter(c, a.send, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Iscatter(c, a.send, a.recv, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.ScatterInit(c, a.send, a.recv, a.root)
			},
		},
		{
			"Scatterv", true, true, defineScatterv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Scatterv(c, a.send, a.scounts, a.sdispls, a.recv, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Iscatterv(c, a.send, a.scounts, a.sdispls, a.recv, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.ScattervInit(c, a.send, a.scounts, a.sdispls, a.recv, a.root)
			},
		},
		{
			"Alltoall", false, true, defineAlltoall[T],
			func(c *cohort.Comm, a *args[T]) error { return cohort.Alltoall(c, a.send, a.recv) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Ialltoall(c, a.send, a.recv)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.AlltoallInit(c, a.send, a.recv)
			},
		},
		{
			"Alltoallv", false, true, defineAlltoallv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Alltoallv(c, a.send, a.scounts, a.sdispls, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Ialltoallv(c, a.send, a.scounts, a.sdispls, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.AlltoallvInit(c, a.send, a.scounts, a.sdispls, a.recv, a.rcounts, a.rdispls)
			},
		},
	}
}

func defineBcast[T comparable](a *args[T]) {
	a.buffers(-1, a.m)
	if a.rank == a.root {
		a.put(a.recv, a.rank, 0)
	}
	a.images()
	a.expect(0, a.m, a.root, 0)
}

func defineGather[T comparable](a *args[T]) {
	switch {
	case a.rank != a.root:
		a.buffers(a.m, -1)
		a.put(a.send, a.rank, 0)
	case a.inPlace:
		a.same(a.size * a.m)
		a.put(a.recv[a.rank*a.m:][:a.m], a.rank, 0)
	default:
		a.buffers(a.m, a.size*a.m)
		a.put(a.send, a.rank, 0)
	}
	a.images()
	if a.rank == a.root {
		for r := range a.size {
			a.expect(r*a.m, a.m, r, 0)
		}
	}
}

func defineGatherv[T comparable](a *args[T]) {
	counts := each(a.size, a.ragged)
	displs, n := backwards(counts)
	a.rcounts, a.rdispls = nil, nil
	if a.rank == a.root {
		a.rcounts, a.rdispls = counts, displs
	}
	switch {
	case a.rank != a.root:
		a.buffers(counts[a.rank], -1)
		a.put(a.send, a.rank, 0)
	case a.inPlace:
		a.same(n)
		a.put(a.recv[displs[a.rank]:][:counts[a.rank]], a.rank, 0)
	default:
		a.buffers(counts[a.rank], n)
		a.put(a.send, a.rank, 0)
	}
	a.images()
	if a.rank == a.root {
		for r := range a.size {
			a.expect(displs[r], counts[r], r, 0)
		}
	}
}

func defineAllgather[T comparable](a *args[T]) {
	if a.inPlace {
		a.same(a.size * a.m)
		a.put(a.recv[a.rank*a.m:][:a.m], a.rank, 0)
	} else {
		a.buffers(a.m, a.size*a.m)
		a.put(a.send, a.rank, 0)
	}
	a.images()
	for r := range a.size {
		a.expect(r*a.m, a.m, r, 0)
	}
}

// The displacements of Allgatherv may differ between ranks: even ranks lay the blocks
// out in reverse with gaps, odd ranks in order without gaps.
func defineAllgatherv[T comparable](a *args[T]) {
	a.rcounts = each(a.size, a.ragged)
	var n int
	if a.rank%2 == 0 {
		a.rdispls, n = backwards(a.rcounts)
	} else {
		a.rdispls, n = forwards(a.rcounts)
	}
	mine := a.rcounts[a.rank]
	if a.inPlace {
		a.same(n)
		a.put(a.recv[a.rdispls[a.rank]:][:mine], a.rank, 0)
	} else {
		a.buffers(mine, n)
		a.put(a.send, a.rank, 0)
	}
	a.images()
	for r := range a.size {
		a.expect(a.rdispls[r], a.rcounts[r], r, 0)
	}
}

func defineScatter[T comparable](a *args[T]) {
	switch {
	case a.rank != a.root:
		a.buffers(-1, a.m)
	case a.inPlace:
		a.same(a.size * a.m)
		a.put(a.send, a.root, 0)
	default:
		a.buffers(a.size*a.m, a.m)
		a.put(a.send, a.root, 0)
	}
	a.images()
	if a.rank != a.root || !a.inPlace {
		a.expect(0, a.m, a.root, a.rank*a.m)
	}
}

// Every block of Scatterv begins one element before the end of the previous one: reading
// an element twice is allowed.
func defineScatterv[T comparable](a *args[T]) {
	counts := each(a.size, a.ragged)
	displs, end, n := make([]int, a.size), 0, 0
	for i, c := range counts {
		displs[i] = max(end-1, 0)
		end = displs[i] + c
		n = max(n, end+1)
	}
	a.scounts, a.sdispls = nil, nil
	if a.rank == a.root {
		a.scounts, a.sdispls = counts, displs
	}
	switch {
	case a.rank != a.root:
		a.buffers(-1, counts[a.rank])
	case a.inPlace:
		a.same(n)
		a.put(a.send, a.root, 0)
	default:
		a.buffers(n, counts[a.rank])
		a.put(a.send, a.root, 0)
	}
	a.images()
	if a.rank != a.root || !a.inPlace {
		a.expect(0, counts[a.rank], a.root, displs[a.rank])
	}
}

func defineAlltoall[T comparable](a *args[T]) {
	n := a.size * a.m
	if a.inPlace {
		a.same(n)
	} else {
		a.buffers(n, n)
	}
	a.put(a.send, a.rank, 0)
	a.images()
	for r := range a.size {
		a.expect(r*a.m, a.m, r, a.rank*a.m)
	}
}

// In place, two ranks send each other the same length. Otherwise rank i sends rank j
// another length than j sends i.
func defineAlltoallv[T comparable](a *args[T]) {
	count := func(from, to int) int { return (2*from + to + 1) % 4 * a.m / 3 }
	if a.inPlace {
		count = func(from, to int) int { return (from + to) % 3 * a.m / 2 }
	}
	sends := func(rank int) ([]int, []int, int) {
		counts := each(a.size, func(to int) int { return count(rank, to) })
		displs, n := backwards(counts)
		return counts, displs, n
	}
	var ns, nr int
	if a.inPlace {
		a.rcounts, a.rdispls, nr = sends(a.rank)
		a.same(nr)
		a.put(a.send, a.rank, 0)
	} else {
		a.scounts, a.sdispls, ns = sends(a.rank)
		a.rcounts = each(a.size, func(from int) int { return count(from, a.rank) })
		a.rdispls, nr = forwards(a.rcounts)
		a.buffers(ns, nr)
		a.put(a.send, a.rank, 0)
	}
	a.images()
	for r := range a.size {
		_, displs, _ := sends(r)
		a.expect(a.rdispls[r], a.rcounts[r], r, displs[a.rank])
	}
}
