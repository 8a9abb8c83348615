package cohorttest

import "github.com/cohort-hpc/cohort"

// element is a type of the matrix that can be reduced.
type element interface {
	comparable
	cohort.Number
}

// reductions are the collectives that combine data (MPI-4.1 sections 6.9 to
// 6.11), with the given operation and its definition.
func reductions[T element]() []family[T] {
	type (
		block = func(c *cohort.Comm, send, recv []T, op cohort.Op) error
		start = func(c *cohort.Comm, send, recv []T, op cohort.Op) (*cohort.Request, error)
		setup = func(c *cohort.Comm, send, recv []T, op cohort.Op) (*cohort.Persistent, error)
	)
	all := func(name string, define func(a *args[T]), b block, s start, p setup) family[T] {
		return family[T]{name, false, true, define,
			func(c *cohort.Comm, a *args[T]) error { return b(c, a.send, a.recv, a.op) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) { return s(c, a.send, a.recv, a.op) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) { return p(c, a.send, a.recv, a.op) }}
	}
	return []family[T]{
		{"Reduce", true, true, defineReduce[T],
			func(c *cohort.Comm, a *args[T]) error { return cohort.Reduce(c, a.send, a.recv, a.op, a.root) },
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.Ireduce(c, a.send, a.recv, a.op, a.root)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.ReduceInit(c, a.send, a.recv, a.op, a.root)
			}},
		all("Allreduce", defineAllreduce[T], cohort.Allreduce[T], cohort.Iallreduce[T], cohort.AllreduceInit[T]),
		all("ReduceScatterBlock", defineReduceScatterBlock[T],
			cohort.ReduceScatterBlock[T], cohort.IreduceScatterBlock[T], cohort.ReduceScatterBlockInit[T]),
		{"ReduceScatter", false, true, defineReduceScatter[T],
			func(c *cohort.Comm, a *args[T]) error {
				return cohort.ReduceScatter(c, a.send, a.recv, a.rcounts, a.op)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Request, error) {
				return cohort.IreduceScatter(c, a.send, a.recv, a.rcounts, a.op)
			},
			func(c *cohort.Comm, a *args[T]) (*cohort.Persistent, error) {
				return cohort.ReduceScatterInit(c, a.send, a.recv, a.rcounts, a.op)
			}},
		all("Scan", defineScan[T], cohort.Scan[T], cohort.Iscan[T], cohort.ScanInit[T]),
		all("Exscan", defineExscan[T], cohort.Exscan[T], cohort.Iexscan[T], cohort.ExscanInit[T]),
	}
}

// operands gives a reduction its buffers, with ns elements of input and nr of result, or
// in place one buffer for both.
func operands[T comparable](a *args[T], ns, nr int) {
	if a.inPlace {
		a.same(max(ns, nr))
	} else {
		a.buffers(ns, nr)
	}
	a.put(a.send, a.rank, 0)
	a.images()
}

func defineReduce[T comparable](a *args[T]) {
	if a.rank != a.root {
		a.buffers(a.m, -1)
		a.put(a.send, a.rank, 0)
		a.images()
		return
	}
	operands(a, a.m, a.m)
	a.expectFold(0, a.m, 0, a.size, 0)
}

func defineAllreduce[T comparable](a *args[T]) {
	operands(a, a.m, a.m)
	a.expectFold(0, a.m, 0, a.size, 0)
}

func defineReduceScatterBlock[T comparable](a *args[T]) {
	operands(a, a.size*a.m, a.m)
	a.expectFold(0, a.m, 0, a.size, a.rank*a.m)
	a.looseTail(a.m)
}

func defineReduceScatter[T comparable](a *args[T]) {
	a.rcounts = each(a.size, a.ragged)
	displs, n := forwards(a.rcounts)
	operands(a, n, a.rcounts[a.rank])
	a.expectFold(0, a.rcounts[a.rank], 0, a.size, displs[a.rank])
	a.looseTail(a.rcounts[a.rank])
}

// looseTail makes what follows the result in recv loose if the call is in place: it is
// not specified.
func (a *args[T]) looseTail(n int) {
	if a.inPlace {
		end := len(a.recv)
		a.loose = func(i int) bool { return i >= n && i < end }
	}
}

func defineScan[T comparable](a *args[T]) {
	operands(a, a.m, a.m)
	a.expectFold(0, a.m, 0, a.rank+1, 0)
}

func defineExscan[T comparable](a *args[T]) {
	operands(a, a.m, a.m)
	if a.rank > 0 {
		a.expectFold(0, a.m, 0, a.rank, 0)
	}
}
