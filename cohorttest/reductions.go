package cohorttest

import "github.com/cohort-hpc/cohort"

// reductions are the collectives that combine data (MPI-4.1 sections 6.9 to
// 6.11), with the given operation and its definition.
func reductions[T comparable]() []family[T] {
	combined := allreduces[T]().passed
	// prefix defines a call whose result combines the contributions of the ranks below end.
	prefix := func(end int) func(a *args[T]) {
		return func(a *args[T]) {
			operands(a, a.m, a.m)
			a.expectFold(0, a.m, 0, a.rank+end, 0)
		}
	}
	return []family[T]{
		{"Reduce", true, true, defineReduce[T], [3]any{cohort.Reduce[T], cohort.Ireduce[T], cohort.ReduceInit[T]},
			func(a *args[T]) []any { return []any{a.send, a.recv, a.op, a.root} }, nil},
		allreduces[T](),
		{"ReduceScatterBlock", false, true, defineReduceScatterBlock[T],
			[3]any{cohort.ReduceScatterBlock[T], cohort.IreduceScatterBlock[T], cohort.ReduceScatterBlockInit[T]}, combined, nil},
		{"ReduceScatter", false, true, defineReduceScatter[T],
			[3]any{cohort.ReduceScatter[T], cohort.IreduceScatter[T], cohort.ReduceScatterInit[T]},
			func(a *args[T]) []any { return []any{a.send, a.recv, a.rcounts, a.op} }, nil},
		{"Scan", false, true, prefix(1), [3]any{cohort.Scan[T], cohort.Iscan[T], cohort.ScanInit[T]}, combined, nil},
		{"Exscan", false, true, prefix(0), [3]any{cohort.Exscan[T], cohort.Iexscan[T], cohort.ExscanInit[T]}, combined, nil},
	}
}

func allreduces[T comparable]() family[T] {
	return family[T]{"Allreduce", false, true, defineAllreduce[T], [3]any{cohort.Allreduce[T], cohort.Iallreduce[T], cohort.AllreduceInit[T]},
		func(a *args[T]) []any { return []any{a.send, a.recv, a.op} }, nil}
}

// operands gives a reduction its buffers, with ns elements of input and nr of result, or
// in place one buffer for both.
func operands[T comparable](a *args[T], ns, nr int) {
	if a.inPlace(a.rank) {
		a.same(max(ns, nr))
	} else {
		a.buffers(ns, nr)
	}
	a.put(a.send, a.rank, 0)
	a.images()
}

func defineReduce[T comparable](a *args[T]) {
	if a.rank == a.root {
		defineAllreduce(a)
		return
	}
	a.buffers(a.m, -1)
	a.put(a.send, a.rank, 0)
	a.images()
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
	if a.inPlace(a.rank) {
		end := len(a.recv)
		a.loose = func(i int) bool { return i >= n && i < end }
	}
}
