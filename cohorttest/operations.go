package cohorttest

import (
	"math"

	"github.com/cohort-hpc/cohort"
)

// Every predefined operation over every kind of element, MinLoc and MaxLoc, the scalar forms, and ReduceLocal.

// reduction checks op on elements of one kind.
type reduction[T comparable] = func(r *Rank, k kind[T], op cohort.Op, fold func(a, b T) T)

// reduceAll does so with every reduction, in every form and for three lengths, and with ReduceLocal. The smaller matrix
// has one length, and one form for each reduction; the forms take turns from call to call.
func reduceAll[T comparable](r *Rank, k kind[T], op cohort.Op, fold func(a, b T) T) {
	reduceWith(r, reductions[T](), k, op, fold)
}

// allreduce does so with Allreduce and ReduceLocal. For the other reductions, types and operations make no difference
// that those tried with reduceAll do not.
func allreduce[T comparable](r *Rank, k kind[T], op cohort.Op, fold func(a, b T) T) {
	reduceWith(r, []family[T]{allreduces[T]()}, k, op, fold)
}

func reduceWith[T comparable](r *Rank, families []family[T], k kind[T], op cohort.Op, fold func(a, b T) T) {
	lengths := []int{1, 3, 67}
	if r.Short {
		lengths = lengths[2:]
	}
	for i, f := range families {
		root := -1
		if f.rooted {
			root = r.Size / 2
		}
		for j, form := range forms {
			if r.Short && (i+r.reduced)%len(forms) != j {
				continue
			}
			for _, m := range lengths {
				runCase(r, f, k, shape{m, root, apart, 7}, form, op, fold)
			}
		}
	}
	r.reduced++
	for _, m := range lengths {
		in, inout, want := newBuffer(k, m), newBuffer(k, m), newBuffer(k, m)
		for i := range m {
			in.data[i], inout.data[i] = k.elem(value(7, 0, i)), k.elem(value(7, 1, i))
			want.data[i] = fold(in.data[i], inout.data[i])
		}
		r.OK(cohort.ReduceLocal(in.data, inout.data, op))
		inout.is(r, want, "ReduceLocal of %d %s with %v", m, k.name, op)
	}
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

func truth[T integer](b bool) T {
	if b {
		return 1
	}
	return 0
}

func integerKind[T integer](r *Rank, name string, reduce reduction[T]) {
	// Negative numbers if the type has them, numbers that use all bits, and zero often
	// enough for the logical operations.
	k := kind[T]{name, func(x int) T {
		if x%3 == 0 {
			return 0
		}
		h := uint64(x) * 0x9e3779b97f4a7c15
		return T(h ^ h>>32) // the top bit too
	}, 0x5a}
	for _, o := range []struct {
		op   cohort.Op
		fold func(a, b T) T
	}{
		{cohort.Sum, func(a, b T) T { return a + b }},
		{cohort.Prod, func(a, b T) T { return a * b }},
		{cohort.Min, func(a, b T) T { return min(a, b) }},
		{cohort.Max, func(a, b T) T { return max(a, b) }},
		{cohort.Land, func(a, b T) T { return truth[T](a != 0 && b != 0) }},
		{cohort.Lor, func(a, b T) T { return truth[T](a != 0 || b != 0) }},
		{cohort.Lxor, func(a, b T) T { return truth[T]((a != 0) != (b != 0)) }},
		{cohort.Band, func(a, b T) T { return a & b }},
		{cohort.Bor, func(a, b T) T { return a | b }},
		{cohort.Bxor, func(a, b T) T { return a ^ b }},
	} {
		if o.op != cohort.Land && o.op != cohort.Lor && o.op != cohort.Lxor {
			reduce(r, k, o.op, o.fold)
		} else if r.Size > 1 {
			// Only Allreduce: of what is not combined with anything, as with one rank or in the first prefix of a scan,
			// a logical operation may leave the numbers or make them 0 and 1. MPI leaves this open.
			allreduce(r, k, o.op, o.fold)
		}
	}
}

func integerOps(r *Rank) {
	integerKind(r, "int8", allreduce[int8])
	integerKind(r, "int16", allreduce[int16])
	integerKind(r, "int32", allreduce[int32])
	integerKind(r, "int64", reduceAll[int64])
	integerKind(r, "uint8", allreduce[uint8])
	integerKind(r, "uint64", allreduce[uint64])
	if !r.allTypes() {
		return
	}
	integerKind(r, "int", allreduce[int])
	integerKind(r, "uint", allreduce[uint])
	integerKind(r, "uint16", allreduce[uint16])
	integerKind(r, "uint32", allreduce[uint32])
	integerKind(r, "uintptr", allreduce[uintptr])
	integerKind(r, "named int64", allreduce[ticks])
}

type floating interface {
	~float32 | ~float64
}

// few returns small numbers of both signs: sums and products of one for each rank are
// exact.
func few(x int) int { return x%5 - 2 }

// power returns powers of two of both signs, whose products are exact.
func power(x int) float64 { return [...]float64{1, -1, 2, -0.5, 1}[x%5] }

// rotation returns complex numbers whose products are exact: rotations by a quarter, and
// one by an eighth that also stretches.
func rotation(x int) complex128 { return [...]complex128{1, 1i, -1, -1i, 1 + 1i}[x%5] }

func floatKind[T floating](r *Rank, name string, reduce reduction[T]) {
	k := kind[T]{name, func(x int) T { return T(few(x)) + 0.5 }, -7}
	reduce(r, k, cohort.Sum, func(a, b T) T { return a + b })
	reduce(r, k, cohort.Min, func(a, b T) T { return min(a, b) })
	reduce(r, k, cohort.Max, func(a, b T) T { return max(a, b) })
	k.elem = func(x int) T { return T(power(x)) }
	reduce(r, k, cohort.Prod, func(a, b T) T { return a * b })
}

func complexKind[T complex64 | complex128](r *Rank, name string) {
	k := kind[T]{name, func(x int) T { return T(complex(float64(few(x)), float64(few(x/5)))) }, -7}
	allreduce(r, k, cohort.Sum, func(a, b T) T { return a + b })
	k.elem = func(x int) T { return T(rotation(x)) }
	allreduce(r, k, cohort.Prod, func(a, b T) T { return a * b })
}

func floatOps(r *Rank) {
	floatKind(r, "float64", reduceAll[float64])
	floatKind(r, "float32", allreduce[float32])
	complexKind[complex64](r, "complex64")
	complexKind[complex128](r, "complex128")
}

// halfOps reduces numbers of 16 bits whose sums and products are exact. The root's tests show what their bits are.
func halfOps(r *Rank) {
	halfKind(r, "float16", cohort.ToFloat16)
	halfKind(r, "bfloat16", cohort.ToBFloat16)
}

func halfKind[T interface {
	comparable
	Float32() float32
}](r *Rank, name string, from func(float32) T) {
	k := kind[T]{name, func(x int) T { return from(float32(few(x))) }, from(-7)}
	allreduce(r, k, cohort.Sum, func(a, b T) T { return from(a.Float32() + b.Float32()) })
	allreduce(r, k, cohort.Min, func(a, b T) T { return from(min(a.Float32(), b.Float32())) })
	allreduce(r, k, cohort.Max, func(a, b T) T { return from(max(a.Float32(), b.Float32())) })
	k.elem = func(x int) T { return from(float32(power(x))) }
	allreduce(r, k, cohort.Prod, func(a, b T) T { return from(a.Float32() * b.Float32()) })
}

// specialFloats checks that Min and Max do not depend on which rank has the NaN or the
// negative zero.
func specialFloats(r *Rank) {
	negZero := math.Copysign(0, -1)
	for who := range r.Size {
		for _, c := range []struct {
			op             cohort.Op
			special, other float64
			want           float64
		}{
			{cohort.Min, math.NaN(), 1, math.NaN()},
			{cohort.Max, math.NaN(), 1, math.NaN()},
			{cohort.Sum, math.NaN(), 1, math.NaN()},
			{cohort.Min, negZero, 0, negZero},
			{cohort.Max, negZero, 0, 0},
			{cohort.Min, math.Inf(-1), 5, math.Inf(-1)},
			{cohort.Max, math.Inf(1), 5, math.Inf(1)},
			{cohort.Max, math.Inf(-1), 5, 5},
		} {
			x, want := c.other, c.want
			if r.Rank == who {
				x = c.special
			}
			if r.Size == 1 {
				want = c.special
			}
			got := must(cohort.AllreduceOne(r.Comm, x, c.op))
			same := got == want && math.Signbit(got) == math.Signbit(want) || math.IsNaN(got) && math.IsNaN(want)
			if !same {
				r.Errorf("%v of %v on rank %d and %v on the others is %v, want %v", c.op, c.special, who, c.other, got, want)
			}
		}
	}
}

func boolOps(r *Rank) {
	k := kind[bool]{"bool", func(x int) bool { return x%3 == 0 }, true}
	allreduce(r, k, cohort.Land, func(a, b bool) bool { return a && b })
	allreduce(r, k, cohort.Lor, func(a, b bool) bool { return a || b })
	allreduce(r, k, cohort.Lxor, func(a, b bool) bool { return a != b })
}

// locationOps checks MinLoc and MaxLoc: of equal values the lower index wins, whichever
// rank has it.
func locationOps(r *Rank) {
	locations(r, reduceAll[cohort.Loc[float64]])
	locations(r, allreduce[cohort.Loc[float32]])
	locations(r, allreduce[cohort.Loc[int32]])
	locations(r, allreduce[cohort.Loc[int64]])
	locations(r, allreduce[cohort.Loc[uint8]])
}

func locations[T cohort.Real](r *Rank, reduce reduction[cohort.Loc[T]]) {
	type loc = cohort.Loc[T]
	k := kind[loc]{"Loc", func(x int) loc { return loc{Val: T(x / 20), Idx: int64(x * 7 % 20)} }, loc{Idx: -7}} // 5 values, 20 indices
	reduce(r, k, cohort.MinLoc, func(a, b loc) loc {
		if b.Val < a.Val || b.Val == a.Val && b.Idx < a.Idx {
			return b
		}
		return a
	})
	reduce(r, k, cohort.MaxLoc, func(a, b loc) loc {
		if b.Val > a.Val || b.Val == a.Val && b.Idx < a.Idx {
			return b
		}
		return a
	})
}

func scalars(r *Rank) {
	c, n, me := r.Comm, r.Size, r.Rank
	for root := range n {
		equal(r, must(cohort.BcastOne(c, packeds.elem(me), root)), packeds.elem(root), "BcastOne from %d", root)
		want := 0
		if me == root {
			want = n * (n + 1) / 2
		}
		equal(r, must(cohort.ReduceOne(c, me+1, cohort.Sum, root)), want, "ReduceOne to %d", root)
	}
	equal(r, must(cohort.AllreduceOne(c, me, cohort.Max)), n-1, "AllreduceOne")
	equal(r, must(cohort.ScanOne(c, me+1, cohort.Sum)), (me+1)*(me+2)/2, "ScanOne")
	equal(r, must(cohort.ExscanOne(c, me+1, cohort.Sum)), me*(me+1)/2, "ExscanOne")
}
