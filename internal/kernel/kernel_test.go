package kernel

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// The oracle works on one element at a time and on the definitions: integers
// with math/big, floats with the cases spelled out.

func wrap[T integer](x *big.Int) T {
	m := new(big.Int).Lsh(big.NewInt(1), 64)
	return T(new(big.Int).Mod(x, m).Uint64()) // the low bits, as two's complement has them
}

func bigOf[T integer](x T) *big.Int {
	if x < 0 {
		return big.NewInt(int64(x))
	}
	return new(big.Int).SetUint64(uint64(x))
}

func oracleInt[T integer](op backend.OpCode, x, y T) T {
	a, b := bigOf(x), bigOf(y)
	bit := func(v bool) T {
		if v {
			return 1
		}
		return 0
	}
	switch op {
	case backend.OpSum:
		return wrap[T](new(big.Int).Add(a, b))
	case backend.OpProd:
		return wrap[T](new(big.Int).Mul(a, b))
	case backend.OpMin:
		if a.Cmp(b) < 0 {
			return x
		}
		return y
	case backend.OpMax:
		if a.Cmp(b) > 0 {
			return x
		}
		return y
	case backend.OpLand:
		return bit(a.Sign() != 0 && b.Sign() != 0)
	case backend.OpLor:
		return bit(a.Sign() != 0 || b.Sign() != 0)
	case backend.OpLxor:
		return bit((a.Sign() != 0) != (b.Sign() != 0))
	case backend.OpBand:
		return wrap[T](new(big.Int).And(a, b))
	case backend.OpBor:
		return wrap[T](new(big.Int).Or(a, b))
	case backend.OpBxor:
		return wrap[T](new(big.Int).Xor(a, b))
	}
	panic(op)
}

func oracleFloat(op backend.OpCode, x, y float64) float64 {
	switch op {
	case backend.OpSum:
		return x + y
	case backend.OpProd:
		return x * y
	}
	if math.IsNaN(x) || math.IsNaN(y) {
		return math.NaN()
	}
	first := x < y || x == 0 && y == 0 && math.Signbit(x) && !math.Signbit(y)
	if first == (op == backend.OpMin) {
		return x
	}
	return y
}

var lengths = []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 100, 129}

// run applies f as Op.Apply may be called: into another vector, into a, into b,
// and at an odd address, and checks what stands there and around it.
func run[T comparable](t *testing.T, what string, f Apply, gen func() T, want func(x, y T) T, eq func(a, b T) bool) {
	t.Helper()
	for _, n := range lengths {
		a, b := make([]T, n), make([]T, n)
		for i := range a {
			a[i], b[i] = gen(), gen()
		}
		modes := 4 // the last has odd addresses
		if runtime.GOARCH == "arm" {
			modes = 3 // this processor faults on them
		}
		for mode := range modes {
			size := view.Size[T]()
			room := make([]byte, 3*(n*size+16)+1)
			for i := range room {
				room[i] = 0xa5
			}
			shift := mode / 3
			x := room[shift+8:][: n*size : n*size]
			y := room[shift+n*size+24:][: n*size : n*size]
			d := room[shift+2*(n*size+16)+8:][: n*size : n*size]
			copy(x, view.Bytes(a))
			copy(y, view.Bytes(b))
			switch mode {
			case 1:
				d = x
			case 2:
				d = y
			}
			f(d, x, y)
			got := view.Of[T](d)
			for i := range n {
				if w := want(a[i], b[i]); !eq(got[i], w) {
					t.Fatalf("%s, length %d, mode %d: element %d of %v and %v is %v, want %v", what, n, mode, i, a[i], b[i], got[i], w)
				}
			}
			for i, c := range room {
				inside := func(p []byte) bool { return len(p) > 0 && view.Overlap(room[i:i+1], p) }
				if c != 0xa5 && !inside(x) && !inside(y) && !inside(d) {
					t.Fatalf("%s, length %d, mode %d: byte %d outside the vectors was written", what, n, mode, i)
				}
			}
		}
	}
}

func equal[T comparable](a, b T) bool { return a == b }

func testInt[T integer](t *testing.T, kind backend.Kind) {
	rng := rand.New(rand.NewPCG(uint64(kind), 1))
	var lo, hi T
	hi = ^T(0)
	if hi < 0 {
		lo = T(1) << (8*view.Size[T]() - 1)
		hi = ^lo
	}
	special := []T{0, 1, 2, lo, hi, lo + 1, hi - 1, ^T(0)}
	gen := func() T {
		if rng.IntN(3) == 0 {
			return special[rng.IntN(len(special))]
		}
		return T(rng.Uint64())
	}
	for op := backend.OpSum; op <= backend.OpBxor; op++ {
		f := For(op, kind)
		if f == nil {
			t.Fatalf("%v has no %v", kind, op)
		}
		run(t, fmt.Sprintf("%v of %v", op, kind), f, gen, func(x, y T) T { return oracleInt(op, x, y) }, equal[T])
	}
}

func TestIntegerOpsMatchOracle(t *testing.T) {
	testInt[int8](t, backend.Int8)
	testInt[int16](t, backend.Int16)
	testInt[int32](t, backend.Int32)
	testInt[int64](t, backend.Int64)
	testInt[uint8](t, backend.Uint8)
	testInt[uint16](t, backend.Uint16)
	testInt[uint32](t, backend.Uint32)
	testInt[uint64](t, backend.Uint64)
}

var specialFloats = []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 0.1, 1e-40, 3e38, -3e38}

func genFloat(rng *rand.Rand) float64 {
	if rng.IntN(2) == 0 {
		return specialFloats[rng.IntN(len(specialFloats))]
	}
	return rng.NormFloat64() * math.Pow(10, float64(rng.IntN(9)-4))
}

var realOps = []backend.OpCode{backend.OpSum, backend.OpProd, backend.OpMin, backend.OpMax}

func TestFloatOpsMatchOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	eq := func(a, b float64) bool { return same(a, b) }
	for _, op := range realOps {
		run(t, op.String()+" of float64", For(op, backend.Float64), func() float64 { return genFloat(rng) },
			func(x, y float64) float64 { return oracleFloat(op, x, y) }, eq)
		// A float32 sum or product is the float64 one rounded: 53 bits are more
		// than twice 24 (Figueroa 1995).
		run(t, op.String()+" of float32", For(op, backend.Float32), func() float32 { return float32(genFloat(rng)) },
			func(x, y float32) float32 { return float32(oracleFloat(op, float64(x), float64(y))) },
			func(a, b float32) bool { return same(float64(a), float64(b)) })
		// Halves: exact in float64, rounded once to float32 and once to half.
		run(t, op.String()+" of float16", For(op, backend.Float16), func() uint16 { return uint16(rng.Uint32()) },
			func(x, y uint16) uint16 {
				return nearest16(float64(float32(oracleFloat(op, value16(x), value16(y)))), value16, 0x7c00)
			},
			func(a, b uint16) bool { return same(value16(a), value16(b)) })
		run(t, op.String()+" of bfloat16", For(op, backend.BFloat16), func() uint16 { return uint16(rng.Uint32()) },
			func(x, y uint16) uint16 {
				return nearest16(float64(float32(oracleFloat(op, value16b(x), value16b(y)))), value16b, 0x7f80)
			},
			func(a, b uint16) bool { return same(value16b(a), value16b(b)) })
	}
}

func nearest16(x float64, value func(uint16) float64, inf uint16) uint16 {
	if x != x {
		return inf + 1
	}
	return nearest(x, value, inf)
}

func TestMinAndMaxIgnoreTheOrderOfOperands(t *testing.T) {
	for _, op := range []backend.OpCode{backend.OpMin, backend.OpMax} {
		for _, x := range specialFloats {
			for _, y := range specialFloats {
				a, b, d := []float64{x}, []float64{y}, make([]float64, 2)
				For(op, backend.Float64)(view.Bytes(d[:1]), view.Bytes(a), view.Bytes(b))
				For(op, backend.Float64)(view.Bytes(d[1:]), view.Bytes(b), view.Bytes(a))
				if !same(d[0], d[1]) {
					t.Errorf("%v(%v, %v) = %v, the other way round %v", op, x, y, d[0], d[1])
				}
			}
		}
	}
}

func TestComplexOpsMatchOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	small := func() float64 { return float64(rng.IntN(2001) - 1000) } // products are exact
	mul := func(x, y complex128) complex128 {
		return complex(re(x)*re(y)-imag(x)*imag(y), re(x)*imag(y)+imag(x)*re(y))
	}
	run(t, "sum of complex128", For(backend.OpSum, backend.Complex128), func() complex128 { return complex(small(), small()) },
		func(x, y complex128) complex128 { return complex(re(x)+re(y), imag(x)+imag(y)) }, equal[complex128])
	run(t, "prod of complex128", For(backend.OpProd, backend.Complex128), func() complex128 { return complex(small(), small()) }, mul, equal[complex128])
	run(t, "sum of complex64", For(backend.OpSum, backend.Complex64), func() complex64 { return complex64(complex(small(), small())) },
		func(x, y complex64) complex64 { return complex64(complex128(x) + complex128(y)) }, equal[complex64])
	run(t, "prod of complex64", For(backend.OpProd, backend.Complex64), func() complex64 { return complex64(complex(small(), small())) },
		func(x, y complex64) complex64 { return complex64(mul(complex128(x), complex128(y))) }, equal[complex64])
}

func TestBoolOpsMatchOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	gen := func() bool { return rng.IntN(2) == 0 }
	run(t, "land", For(backend.OpLand, backend.Bool), gen, func(x, y bool) bool { return x && y }, equal[bool])
	run(t, "lor", For(backend.OpLor, backend.Bool), gen, func(x, y bool) bool { return x || y }, equal[bool])
	run(t, "lxor", For(backend.OpLxor, backend.Bool), gen, func(x, y bool) bool { return x != y }, equal[bool])
}

// re is the builtin real, which this package's constraint hides.
func re(x complex128) float64 { return view.Of[float64](view.Bytes([]complex128{x}))[0] }

// testLoc compares with an oracle that gets the order from a number for each
// value.
func testLoc[T real](t *testing.T, kind backend.Kind, gen func() T, toFloat func(T) float64) {
	rng := rand.New(rand.NewPCG(uint64(kind), 7))
	for _, op := range []backend.OpCode{backend.OpMinLoc, backend.OpMaxLoc} {
		rank := func(v T) (int, float64) { // smaller is chosen
			x := toFloat(v)
			switch {
			case x != x:
				return 0, 0
			case op == backend.OpMaxLoc:
				x = -x
			}
			if x == 0 && math.Signbit(x) {
				return 1, -math.SmallestNonzeroFloat64
			}
			return 1, x
		}
		want := func(x, y pair[T]) pair[T] {
			cx, vx := rank(x.Val)
			cy, vy := rank(y.Val)
			switch {
			case cx != cy:
				if cx < cy {
					return x
				}
				return y
			case vx != vy:
				if vx < vy {
					return x
				}
				return y
			case x.Idx <= y.Idx:
				return x
			}
			return y
		}
		run(t, fmt.Sprintf("%v of %v", op, kind), ForLoc(op, kind), func() pair[T] { return pair[T]{gen(), rng.Int64N(6)} }, want,
			func(a, b pair[T]) bool { return a.Idx == b.Idx && same(toFloat(a.Val), toFloat(b.Val)) })
	}
}

func testIntLoc[T integer](t *testing.T, kind backend.Kind) {
	rng := rand.New(rand.NewPCG(uint64(kind), 8))
	testLoc(t, kind, func() T { return T(rng.IntN(4)) - 1 }, func(v T) float64 { return float64(v) })
}

func TestLocOpsTakeTheLowerIndex(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	testIntLoc[int8](t, backend.Int8)
	testIntLoc[int16](t, backend.Int16)
	testIntLoc[int32](t, backend.Int32)
	testIntLoc[int64](t, backend.Int64)
	testIntLoc[uint8](t, backend.Uint8)
	testIntLoc[uint16](t, backend.Uint16)
	testIntLoc[uint32](t, backend.Uint32)
	testIntLoc[uint64](t, backend.Uint64)
	testLoc(t, backend.Float64, func() float64 { return specialFloats[rng.IntN(len(specialFloats))] }, func(v float64) float64 { return v })
	testLoc(t, backend.Float32, func() float32 { return float32(specialFloats[rng.IntN(len(specialFloats))]) }, func(v float32) float64 { return float64(v) })
	testLoc(t, backend.Float16, func() uint16 { return F16FromF32(float32(specialFloats[rng.IntN(len(specialFloats))])) }, value16)
	testLoc(t, backend.BFloat16, func() uint16 { return BF16FromF32(float32(specialFloats[rng.IntN(len(specialFloats))])) }, value16b)
}

// The operations that do not apply are the ones the documentation says.
func TestOpsExistForTheDocumentedKinds(t *testing.T) {
	for kind := backend.Opaque; kind <= backend.Loc; kind++ {
		for op := backend.OpUser; op <= backend.OpMaxLoc; op++ {
			want := false
			switch {
			case kind == backend.Bool:
				want = op >= backend.OpLand && op <= backend.OpLxor
			case kind >= backend.Int8 && kind <= backend.Uint64:
				want = op >= backend.OpSum && op <= backend.OpBxor
			case kind >= backend.Float16 && kind <= backend.Float64:
				want = op >= backend.OpSum && op <= backend.OpMax
			case kind == backend.Complex64 || kind == backend.Complex128:
				want = op == backend.OpSum || op == backend.OpProd
			}
			if got := For(op, kind) != nil; got != want {
				t.Errorf("%v of %v: there %v, want %v", op, kind, got, want)
			}
			loc := (op == backend.OpMinLoc || op == backend.OpMaxLoc) && kind >= backend.Int8 && kind <= backend.Float64
			if got := ForLoc(op, kind) != nil; got != loc {
				t.Errorf("%v of loc of %v: there %v, want %v", op, kind, got, loc)
			}
		}
	}
}

func TestOpsDoNotAllocate(t *testing.T) {
	a, b := make([]byte, 1600), make([]byte, 1600)
	for kind := backend.Bool; kind < backend.Loc; kind++ {
		for op := backend.OpSum; op <= backend.OpMaxLoc; op++ {
			if f := For(op, kind); f != nil {
				if n := testing.AllocsPerRun(10, func() { f(a, a, b) }); n != 0 {
					t.Errorf("%v of %v allocates %v times", op, kind, n)
				}
			}
			if f := ForLoc(op, kind); f != nil {
				if n := testing.AllocsPerRun(10, func() { f(a, a, b) }); n != 0 {
					t.Errorf("%v of loc of %v allocates %v times", op, kind, n)
				}
			}
		}
	}
}

func BenchmarkApply(b *testing.B) {
	for _, c := range []struct {
		op   backend.OpCode
		kind backend.Kind
	}{
		{backend.OpSum, backend.Float64}, {backend.OpSum, backend.Float32}, {backend.OpSum, backend.Int64}, {backend.OpSum, backend.Int8},
		{backend.OpProd, backend.Float64}, {backend.OpMin, backend.Float64}, {backend.OpMax, backend.Int64},
		{backend.OpBor, backend.Uint8}, {backend.OpLand, backend.Int32}, {backend.OpSum, backend.BFloat16}, {backend.OpSum, backend.Float16},
	} {
		for _, n := range []int{8, 16 << 10} {
			b.Run(fmt.Sprintf("%v/%v/%dB", c.op, c.kind, n), func(b *testing.B) {
				d, x, y := make([]byte, n), make([]byte, n), make([]byte, n)
				f := For(c.op, c.kind)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					f(d, x, y)
				}
			})
		}
	}
}
