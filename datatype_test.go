package cohort

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

type (
	celsius  float64
	index    int
	flag     bool
	fraction uint16
	particle struct {
		Pos  [3]float64
		Kind int32
		_    [4]byte
		Live bool
	}
	nested struct {
		A [2]particle
		B complex64
	}
)

func kindOf[T any](t *testing.T) *backend.Datatype {
	t.Helper()
	d, err := typeFor[T]()
	if err != nil {
		t.Fatal(err)
	}
	if want := view.Size[T](); d.Size != want {
		t.Errorf("%s has size %d, want %d", d.Name, d.Size, want)
	}
	return d
}

func TestNumberTypesHaveTheirKinds(t *testing.T) {
	word, uword := backend.Int64, backend.Uint64
	if unsafe.Sizeof(0) == 4 {
		word, uword = backend.Int32, backend.Uint32
	}
	for _, c := range []struct {
		got  *backend.Datatype
		want backend.Kind
	}{
		{kindOf[int](t), word}, {kindOf[uint](t), uword}, {kindOf[uintptr](t), uword}, {kindOf[index](t), word},
		{kindOf[int8](t), backend.Int8}, {kindOf[int16](t), backend.Int16}, {kindOf[int32](t), backend.Int32}, {kindOf[int64](t), backend.Int64},
		{kindOf[uint8](t), backend.Uint8}, {kindOf[uint16](t), backend.Uint16}, {kindOf[uint32](t), backend.Uint32}, {kindOf[uint64](t), backend.Uint64},
		{kindOf[float32](t), backend.Float32}, {kindOf[float64](t), backend.Float64}, {kindOf[celsius](t), backend.Float64},
		{kindOf[complex64](t), backend.Complex64}, {kindOf[complex128](t), backend.Complex128},
		{kindOf[bool](t), backend.Bool}, {kindOf[flag](t), backend.Bool},
		{kindOf[Float16](t), backend.Float16}, {kindOf[BFloat16](t), backend.BFloat16}, {kindOf[fraction](t), backend.Uint16},
	} {
		if c.got.Kind != c.want || c.got.ID != uint32(c.want) {
			t.Errorf("got kind %v ID %d, want %v", c.got.Kind, c.got.ID, c.want)
		}
	}
}

func TestEqualLayoutsHaveEqualIDs(t *testing.T) {
	type same struct { // the layout of particle under other names
		X [3]float64
		N int32
		_ [4]uint8
		B bool
	}
	type other struct {
		X [3]float64
		N uint32
		_ [4]uint8
		B bool
	}
	p := kindOf[particle](t)
	if p.Kind != backend.Opaque || p.ID < 1<<31 {
		t.Errorf("particle is %v with ID %#x", p.Kind, p.ID)
	}
	if kindOf[same](t).ID != p.ID {
		t.Error("two structs of the same layout have different IDs")
	}
	if kindOf[other](t).ID == p.ID {
		t.Error("two structs of different layouts have the same ID")
	}
	if kindOf[[3]float64](t).ID == kindOf[[4]float64](t).ID {
		t.Error("arrays of different length have the same ID")
	}
	kindOf[nested](t)
	kindOf[[2][3]nested](t)
	kindOf[[1 << 20]float64](t)
}

func TestLocTypesNameElement(t *testing.T) {
	for _, c := range []struct {
		got  *backend.Datatype
		elem backend.Kind
	}{
		{kindOf[Loc[float64]](t), backend.Float64}, {kindOf[Loc[celsius]](t), backend.Float64}, {kindOf[Loc[int8]](t), backend.Int8},
		{kindOf[Loc[Float16]](t), backend.Float16}, {kindOf[Loc[BFloat16]](t), backend.BFloat16}, {kindOf[Loc[uint32]](t), backend.Uint32},
	} {
		if c.got.Kind != backend.Loc || c.got.Elem != c.elem {
			t.Errorf("got %v of %v, want loc of %v", c.got.Kind, c.got.Elem, c.elem)
		}
	}
	if kindOf[Loc[float64]](t).ID == kindOf[Loc[float32]](t).ID {
		t.Error("Locs of different values have the same ID")
	}
}

func TestTypesWithPointersAreRejected(t *testing.T) {
	type list struct {
		Val  int
		Next *list
	}
	type deep struct {
		A int
		B [2]struct{ Name string }
	}
	bad := func(err error, part string) {
		t.Helper()
		if !errors.Is(err, ErrType) || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %v with %q", err, ErrType, part)
		}
	}
	_, err := typeFor[*int]()
	bad(err, "is a pointer")
	_, err = typeFor[string]()
	bad(err, "is a string")
	_, err = typeFor[list]()
	bad(err, "list.Next is a pointer")
	_, err = typeFor[deep]()
	bad(err, "deep.B[0].Name is a string")
	_, err = typeFor[any]()
	bad(err, "interface")
	_, err = typeFor[[]int]()
	bad(err, "slice")
	_, err = typeFor[func()]()
	bad(err, "func")
	_, err = typeFor[struct{}]()
	bad(err, "no size")
	_, err = typeFor[[0]int]()
	bad(err, "no size")
	_, err = typeFor[chan int]()
	bad(err, "chan")
	_, err = typeFor[map[int]int]()
	bad(err, "map")
	_, err = typeFor[unsafe.Pointer]()
	bad(err, "pointer")
}

func TestTypeForDoesNotAllocate(t *testing.T) {
	ops := Op{code: backend.OpSum}
	kindOf[particle](t) // the first call allocates
	kindOf[Loc[float32]](t)
	for name, f := range map[string]func(){
		"float64":  func() { typeFor[float64]() },
		"named":    func() { typeFor[celsius]() },
		"bfloat16": func() { typeFor[BFloat16]() },
		"struct":   func() { typeFor[particle]() },
		"loc":      func() { typeFor[Loc[float32]]() },
		"sum":      func() { opFor[float64](ops) },
		"maxloc":   func() { opFor[Loc[float32]](MaxLoc) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestCountDividesBytesByElementSize(t *testing.T) {
	st := Status{bytes: 24}
	if Count[float64](st) != 3 || Count[int32](st) != 6 || Count[complex128](st) != Undefined || Count[struct{}](st) != Undefined || st.Bytes() != 24 {
		t.Errorf("counts of 24 bytes: %d %d %d %d", Count[float64](st), Count[int32](st), Count[complex128](st), Count[struct{}](st))
	}
	if Count[complex128](Status{}) != 0 {
		t.Error("no bytes are not 0 elements")
	}
}

func TestHalfPrecisionRoundTrips(t *testing.T) {
	for _, x := range []float32{0, 1, -2.5, 65504, float32(math.Inf(1))} {
		if got := ToFloat16(x).Float32(); got != x {
			t.Errorf("%v comes back from Float16 as %v", x, got)
		}
	}
	for _, x := range []float32{0, 1, -2.5, 1 << 100, float32(math.Inf(-1))} {
		if got := ToBFloat16(x).Float32(); got != x {
			t.Errorf("%v comes back from BFloat16 as %v", x, got)
		}
	}
	if s := ToFloat16(0.5).String() + " " + ToBFloat16(-3).String(); s != "0.5 -3" {
		t.Errorf("as text: %s", s)
	}
}
