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
	type (
		block = func(c *cohort.Comm, send, recv []T) error
		start = func(c *cohort.Comm, send, recv []T) (*cohort.Request, error)
		setup = func(c *cohort.Comm, send, recv []T) (*cohort.Persistent, error)

		blockTo = func(c *cohort.Comm, send, recv []T, root int) error
		startTo = func(c *cohort.Comm, send, recv []T, root int) (*cohort.Request, error)
		setupTo = func(c *cohort.Comm, send, recv []T, root int) (*cohort.Persistent, error)
	)
	all := func(name string, define func(a *args[T]), b block, s start, p setup) family[T] {
		return family[T]{name, false, true, define,
			func(c *cohort.Comm, a *args[T]) error { return b(c, a.send, a.recv) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) { return s(c, a.send, a.recv) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) { return p(c, a.send, a.recv) }}
	}
	rooted := func(name string, define func(a *args[T]), b blockTo, s startTo, p setupTo) family[T] {
		return family[T]{name, true, true, define,
			func(c *cohort.Comm, a *args[T]) error { return b(c, a.send, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) { return s(c, a.send, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) { return p(c, a.send, a.recv, a.root) }}
	}
	return []family[T]{
		{"Bcast", true, false, defineBcast[T],
			func(c *cohort.Comm, a *args[T]) error { return cohort.Bcast(c, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) { return cohort.Ibcast(c, a.recv, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.BcastInit(c, a.recv, a.root)
			}},
		rooted("Gather", defineGather[T], cohort.Gather[T], cohort.Igather[T], cohort.GatherInit[T]),
		{"Gatherv", true, true, defineGatherv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Gatherv(c, a.send, a.recv, a.rcounts, a.rdispls, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Igatherv(c, a.send, a.recv, a.rcounts, a.rdispls, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.GathervInit(c, a.send, a.recv, a.rcounts, a.rdispls, a.root)
			}},
		all("Allgather", defineAllgather[T], cohort.Allgather[T], cohort.Iallgather[T], cohort.AllgatherInit[T]),
		{"Allgatherv", false, true, defineAllgatherv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Allgatherv(c, a.send, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Iallgatherv(c, a.send, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.AllgathervInit(c, a.send, a.recv, a.rcounts, a.rdispls)
			}},
		rooted("Scatter", defineScatter[T], cohort.Scatter[T], cohort.Iscatter[T], cohort.ScatterInit[T]),
		{"Scatterv", true, true, defineScatterv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Scatterv(c, a.send, a.scounts, a.sdispls, a.recv, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Iscatterv(c, a.send, a.scounts, a.sdispls, a.recv, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.ScattervInit(c, a.send, a.scounts, a.sdispls, a.recv, a.root)
			}},
		all("Alltoall", defineAlltoall[T], cohort.Alltoall[T], cohort.Ialltoall[T], cohort.AlltoallInit[T]),
		{"Alltoallv", false, true, defineAlltoallv[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.Alltoallv(c, a.send, a.scounts, a.sdispls, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Ialltoallv(c, a.send, a.scounts, a.sdispls, a.recv, a.rcounts, a.rdispls)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.AlltoallvInit(c, a.send, a.scounts, a.sdispls, a.recv, a.rcounts, a.rdispls)
			}},
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
	case a.inPlace:
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

func defineGatherv[T comparable](a *args[T]) {
	counts := each(a.size, a.ragged)
	displs := a.gathers(a.rank == a.root, counts, backwards)
	if a.rcounts, a.rdispls = nil, nil; a.rank == a.root {
		a.rcounts, a.rdispls = counts, displs
	}
}

// The displacements of Allgatherv may differ between ranks: even ranks lay the blocks
// out in reverse with gaps, odd ranks in order without gaps.
func defineAllgatherv[T comparable](a *args[T]) {
	a.rcounts = each(a.size, a.ragged)
	a.rdispls = a.gathers(true, a.rcounts, []layout{backwards, forwards}[a.rank%2])
}

// scatters defines a call in which every rank receives a block of the root.
func (a *args[T]) scatters(counts []int, where layout) (displs []int) {
	displs, n := where(counts)
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
	return displs
}

func defineScatter[T comparable](a *args[T]) { a.scatters(a.equal(), forwards) }

// Every block of Scatterv begins one element before the end of the previous one: reading
// an element twice is allowed.
func defineScatterv[T comparable](a *args[T]) {
	counts := each(a.size, a.ragged)
	displs := a.scatters(counts, func(counts []int) (displs []int, n int) {
		end := 0
		for _, c := range counts {
			displs = append(displs, max(end-1, 0))
			end = max(end-1, 0) + c
			n = max(n, end+1)
		}
		return displs, n
	})
	if a.scounts, a.sdispls = nil, nil; a.rank == a.root {
		a.scounts, a.sdispls = counts, displs
	}
}

// exchanges defines a call in which every rank sends a block to each rank.
func (a *args[T]) exchanges(count func(from, to int) int, where layout) {
	sends := func(rank int) ([]int, []int, int) {
		counts := each(a.size, func(to int) int { return count(rank, to) })
		displs, n := where(counts)
		return counts, displs, n
	}
	var ns, nr int
	a.scounts, a.sdispls, ns = sends(a.rank)
	a.rcounts = each(a.size, func(from int) int { return count(from, a.rank) })
	if a.inPlace {
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
}

func defineAlltoall[T comparable](a *args[T]) {
	a.exchanges(func(_, _ int) int { return a.m }, forwards)
}

// In place, two ranks send each other the same length. Otherwise rank i sends rank j
// another length than j sends i.
func defineAlltoallv[T comparable](a *args[T]) {
	if a.inPlace {
		a.exchanges(func(from, to int) int { return (from + to) % 3 * a.m / 2 }, backwards)
		return
	}
	a.exchanges(func(from, to int) int { return (2*from + to + 1) % 4 * a.m / 3 }, backwards)
}
