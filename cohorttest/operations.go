package cohorttest

import (
	"math"

	"github.com/cohort-hpc/cohort"
)

// Every predefined operation over every kind of element, MinLoc and MaxLoc, the scalar forms, and ReduceLocal.

func operationScenarios() []scenario {
	return []scenario{
		{name: "operations/integers", body: integerOps},
		{name: "operations/floats", body: floatOps},
		{name: "operations/half", body: halfOps},
		{name: "operations/special-floats", body: specialFloats},
		{name: "operations/bools", body: boolOps},
		{name: "operations/locations", body: locationOps},
		{name: "operations/user", body: userOps},
		{name: "operations/user-fails", body: failingOps},
		{name: "operations/scalars", body: scalars},
		{name: "operations/local-misuse", body: wrongLocal},
	}
}

// reduceAll checks op on elements of one kind with every reduction, in every form
// and for three lengths, and with ReduceLocal. The smaller matrix has one length, and one form for each
// reduction; the forms take turns from call to call.
func reduceAll[T element](r *Rank, k kind[T], op cohort.Op, fold func(a, b T) T) {
	lengths := []int{1, 3, 67}
	if r.Short {
		lengths = lengths[2:]
	}
	for i, f := range reductions[T]() {
		root := -1
		if f.rooted {
			root = r.Size / 2
		}
		for j, form := range forms {
			if r.Short && (i+r.reduced)%len(forms) != j {
				continue
			}
			for _, m := range lengths {
				runCase(r, f, k, shape{m, root, false, 7}, form, op, fold)
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
		if i, ok := inout.diff(want, nil); !ok {
			r.Errorf("ReduceLocal of %d %s with %v: element %d is %v, want %v", m, k.name, op, i, inout.all[i+guards], want.all[i+guards])
		}
	}
}

// wrongLocal passes wrong arguments to ReduceLocal.
func wrongLocal(r *Rank) {
	v := []int32{1, 2, 3, 4}
	for what, c := range map[string]struct{ err, want error }{
		"two lengths":         {cohort.ReduceLocal(v[:2], make([]int32, 3), cohort.Sum), cohort.ErrCount},
		"one slice":           {cohort.ReduceLocal(v, v, cohort.Sum), cohort.ErrBuffer},
		"slices that overlap": {cohort.ReduceLocal(v[:3], v[1:], cohort.Sum), cohort.ErrBuffer},
		"no op":               {cohort.ReduceLocal(v[:2], v[2:], cohort.Op{}), cohort.ErrOp},
		"Band of floats":      {cohort.ReduceLocal([]float64{1}, []float64{2}, cohort.Band), cohort.ErrOp},
		"strings":             {cohort.ReduceLocal([]string{"a"}, []string{"b"}, cohort.Sum), cohort.ErrType},
		"an op that panics": {cohort.ReduceLocal(v[:1], v[1:2], cohort.NewOp(true, func(in, inout []int32) { panic("no") })),
			cohort.ErrOp},
	} {
		r.Is(c.err, c.want, "ReduceLocal with %s", what).names("reducelocal")
	}
	for i, x := range v {
		if x != int32(i+1) {
			r.Errorf("element %d was changed to %d", i, x)
		}
	}
	r.OK(cohort.ReduceLocal[int32](nil, []int32{}, cohort.Sum))
}

type integer interface {
	element
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

func truth[T integer](b bool) T {
	if b {
		return 1
	}
	return 0
}

func integerKind[T integer](r *Rank, name string) {
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
		{cohort.Min, func(a, b T) T {
			if b < a {
				return b
			}
			return a
		}},
		{cohort.Max, func(a, b T) T {
			if b > a {
				return b
			}
			return a
		}},
		{cohort.Land, func(a, b T) T { return truth[T](a != 0 && b != 0) }},
		{cohort.Lor, func(a, b T) T { return truth[T](a != 0 || b != 0) }},
		{cohort.Lxor, func(a, b T) T { return truth[T]((a != 0) != (b != 0)) }},
		{cohort.Band, func(a, b T) T { return a & b }},
		{cohort.Bor, func(a, b T) T { return a | b }},
		{cohort.Bxor, func(a, b T) T { return a ^ b }},
	} {
		// With one rank nothing is combined: a logical operation may leave the numbers
		// or make them 0 and 1. MPI leaves this open, and so does the suite.
		if r.Size == 1 && (o.op == cohort.Land || o.op == cohort.Lor || o.op == cohort.Lxor) {
			continue
		}
		if o.op == cohort.Land || o.op == cohort.Lor || o.op == cohort.Lxor {
			logical(r, k, o.op, o.fold)
			continue
		}
		reduceAll(r, k, o.op, o.fold)
	}
}

// logical checks a logical operation with Allreduce. In the scans, rank 0's prefix is not
// combined with anything.
func logical[T integer](r *Rank, k kind[T], op cohort.Op, fold func(a, b T) T) {
	for _, f := range reductions[T]() {
		if f.name == "Allreduce" {
			for _, form := range forms {
				runCase(r, f, k, shape{67, -1, false, 11}, form, op, fold)
			}
		}
	}
}

func integerOps(r *Rank) {
	integerKind[int8](r, "int8")
	integerKind[int16](r, "int16")
	integerKind[int32](r, "int32")
	integerKind[int64](r, "int64")
	integerKind[uint8](r, "uint8")
	integerKind[uint64](r, "uint64")
	if !r.allTypes() {
		return
	}
	integerKind[int](r, "int")
	integerKind[uint](r, "uint")
	integerKind[uint16](r, "uint16")
	integerKind[uint32](r, "uint32")
	integerKind[uintptr](r, "uintptr")
	integerKind[ticks](r, "named int64")
}

type floating interface {
	element
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

func floatKind[T floating](r *Rank, name string) {
	k := kind[T]{name, func(x int) T { return T(few(x)) + 0.5 }, -7}
	reduceAll(r, k, cohort.Sum, func(a, b T) T { return a + b })
	powers := kind[T]{name, func(x int) T { return T(power(x)) }, -7}
	reduceAll(r, powers, cohort.Prod, func(a, b T) T { return a * b })
	reduceAll(r, k, cohort.Min, func(a, b T) T { return min(a, b) })
	reduceAll(r, k, cohort.Max, func(a, b T) T { return max(a, b) })
}

func floatOps(r *Rank) {
	floatKind[float64](r, "float64")
	floatKind[float32](r, "float32")
	c64 := kind[complex64]{"complex64", func(x int) complex64 { return complex(float32(few(x)), float32(few(x/5))) }, -7}
	reduceAll(r, c64, cohort.Sum, func(a, b complex64) complex64 { return a + b })
	rotations64 := kind[complex64]{"complex64", func(x int) complex64 { return complex64(rotation(x)) }, -7}
	reduceAll(r, rotations64, cohort.Prod, func(a, b complex64) complex64 { return a * b })
	c128 := kind[complex128]{"complex128", func(x int) complex128 { return complex(float64(few(x)), float64(few(x/5))) }, -7}
	reduceAll(r, c128, cohort.Sum, func(a, b complex128) complex128 { return a + b })
	rotations128 := kind[complex128]{"complex128", rotation, -7}
	reduceAll(r, rotations128, cohort.Prod, func(a, b complex128) complex128 { return a * b })
}

// halfOps reduces numbers of 16 bits whose sums and products are exact, so that
// the expected bits follow from those of small integers: for float16 1.0 is
// 0x3c00, for bfloat16 0x3f80.
func halfOps(r *Rank) {
	f16 := kind[cohort.Float16]{"float16", func(x int) cohort.Float16 { return cohort.ToFloat16(float32(few(x))) }, 0x5a5a}
	reduceAll(r, f16, cohort.Sum, func(a, b cohort.Float16) cohort.Float16 { return cohort.ToFloat16(a.Float32() + b.Float32()) })
	powers := kind[cohort.Float16]{"float16", func(x int) cohort.Float16 { return cohort.ToFloat16(float32(power(x))) }, 0x5a5a}
	reduceAll(r, powers, cohort.Prod, func(a, b cohort.Float16) cohort.Float16 { return cohort.ToFloat16(a.Float32() * b.Float32()) })
	reduceAll(r, f16, cohort.Max, func(a, b cohort.Float16) cohort.Float16 { return cohort.ToFloat16(max(a.Float32(), b.Float32())) })
	bf16 := kind[cohort.BFloat16]{"bfloat16", func(x int) cohort.BFloat16 { return cohort.ToBFloat16(float32(few(x))) }, 0x5a5a}
	reduceAll(r, bf16, cohort.Sum, func(a, b cohort.BFloat16) cohort.BFloat16 { return cohort.ToBFloat16(a.Float32() + b.Float32()) })
	reduceAll(r, bf16, cohort.Min, func(a, b cohort.BFloat16) cohort.BFloat16 { return cohort.ToBFloat16(min(a.Float32(), b.Float32())) })

	// 2^-24 is the smallest float16 and 1+2^-10 the next after 1; 8-bit 1+2^-7
	// the next bfloat16 after 1.
	for _, c := range []struct {
		x    float32
		bits cohort.Float16
	}{{1, 0x3c00}, {-2, 0xc000}, {65504, 0x7bff}, {1.0 / (1 << 24), 1}, {1 + 1.0/1024, 0x3c01}, {65520, 0x7c00}, {1 + 1.0/2048, 0x3c00}} {
		if got := cohort.ToFloat16(c.x); got != c.bits {
			r.Errorf("ToFloat16(%v) is %#04x, want %#04x", c.x, uint16(got), uint16(c.bits))
		}
	}
	for _, c := range []struct {
		x    float32
		bits cohort.BFloat16
	}{{1, 0x3f80}, {-2, 0xc000}, {1 + 1.0/128, 0x3f81}, {1 + 1.0/256, 0x3f80}, {1 + 3.0/256, 0x3f82}} {
		if got := cohort.ToBFloat16(c.x); got != c.bits {
			r.Errorf("ToBFloat16(%v) is %#04x, want %#04x", c.x, uint16(got), uint16(c.bits))
		}
	}
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
	// Of four columns one is true everywhere, one nowhere, one on rank 0, and
	// one on the odd ranks.
	send := []bool{true, false, r.Rank == 0, r.Rank%2 == 1}
	odd := r.Size / 2
	for _, c := range []struct {
		op   cohort.Op
		want [4]bool
	}{
		{cohort.Land, [4]bool{true, false, r.Size == 1, false}},
		{cohort.Lor, [4]bool{true, false, true, odd > 0}},
		{cohort.Lxor, [4]bool{r.Size%2 == 1, false, true, odd%2 == 1}},
	} {
		recv := make([]bool, 4)
		r.OK(cohort.Allreduce(r.Comm, send, recv, c.op))
		if [4]bool(recv) != c.want {
			r.Errorf("%v of %v...: got %v, want %v", c.op, send, recv, c.want)
		}
	}
}

// locationOps checks MinLoc and MaxLoc: of equal values the lower index wins, whichever
// rank has it.
func locationOps(r *Rank) {
	locations[float64](r)
	locations[float32](r)
	locations[int32](r)
	locations[int64](r)
	locations[uint8](r)
}

func locations[T cohort.Real](r *Rank) {
	n := r.Size
	const m = 5
	at := func(rank, i int) cohort.Loc[T] {
		// Columns: rising, falling, all equal with falling indices, a tie of
		// the first and the last rank, and one of scattered values.
		switch i {
		case 0:
			return cohort.Loc[T]{Val: T(rank), Idx: int64(rank)}
		case 1:
			return cohort.Loc[T]{Val: T(n - rank), Idx: int64(rank)}
		case 2:
			return cohort.Loc[T]{Val: 3, Idx: int64(100 - rank)}
		case 3:
			return cohort.Loc[T]{Val: T(rank * (n - 1 - rank)), Idx: int64(-rank)}
		}
		return cohort.Loc[T]{Val: T(value(5, rank, i)), Idx: int64(rank)}
	}
	better := map[cohort.Op]func(a, b cohort.Loc[T]) bool{
		cohort.MinLoc: func(a, b cohort.Loc[T]) bool { return a.Val < b.Val || a.Val == b.Val && a.Idx < b.Idx },
		cohort.MaxLoc: func(a, b cohort.Loc[T]) bool { return a.Val > b.Val || a.Val == b.Val && a.Idx < b.Idx },
	}
	for _, op := range []cohort.Op{cohort.MinLoc, cohort.MaxLoc} { // in the same order on all ranks
		send, recv, want := make([]cohort.Loc[T], m), make([]cohort.Loc[T], m), make([]cohort.Loc[T], m)
		for i := range m {
			send[i], want[i] = at(r.Rank, i), at(0, i)
			for rank := 1; rank < n; rank++ {
				if x := at(rank, i); better[op](x, want[i]) {
					want[i] = x
				}
			}
		}
		r.OK(cohort.Allreduce(r.Comm, send, recv, op))
		for i := range m {
			if recv[i] != want[i] {
				r.Errorf("%v, column %d: got %v, want %v", op, i, recv[i], want[i])
			}
		}
		clear(recv)
		req := must(cohort.Ireduce(r.Comm, send, recv, op, n-1))
		must(req.Wait())
		for i := range m {
			if r.Rank == n-1 && recv[i] != want[i] {
				r.Errorf("Ireduce, %v, column %d: got %v, want %v", op, i, recv[i], want[i])
			}
		}
	}
}

func scalars(r *Rank) {
	c, n, me := r.Comm, r.Size, r.Rank
	expect := func(what string, got int, err error, want int) {
		r.OK(err)
		if got != want {
			r.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	for root := range n {
		got, err := cohort.BcastOne(c, 10*me+3, root)
		expect("BcastOne", got, err, 10*root+3)
		got, err = cohort.ReduceOne(c, me+1, cohort.Sum, root)
		if me == root {
			expect("ReduceOne", got, err, n*(n+1)/2)
		} else {
			expect("ReduceOne elsewhere", got, err, 0)
		}
	}
	got, err := cohort.AllreduceOne(c, me, cohort.Max)
	expect("AllreduceOne", got, err, n-1)
	got, err = cohort.ScanOne(c, me+1, cohort.Sum)
	expect("ScanOne", got, err, (me+1)*(me+2)/2)
	got, err = cohort.ExscanOne(c, me+1, cohort.Sum)
	expect("ExscanOne", got, err, me*(me+1)/2)

	x := must(cohort.BcastOne(c, packeds.elem(me), n-1))
	if want := packeds.elem(n - 1); x != want {
		r.Errorf("BcastOne of a struct: got %v, want %v", x, want)
	}
}
