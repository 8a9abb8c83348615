package tensor

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// copied compares a Copy of random views, with gaps or without, with single assignments. Only the
// destination's elements may change.
func copied[T cohort.Number](t *testing.T, r *rand.Rand, shape []int, gaps int, turned bool, dst, src *Device) {
	t.Helper()
	from, to := randomLayout(r, shape, gaps, turned), randomLayout(r, shape, gaps, turned)
	source, want := counting[T](from.size()), make([]T, to.size())
	for i := range want {
		want[i] = T(101)
	}
	x := placed(t, src, source, from.base)
	y := placed(t, dst, want, to.base)
	for index := range indices(shape) {
		want[to.at(index)] = source[from.at(index)]
	}
	if err := Copy(viewOf(t, &to, y), viewOf(t, &from, x)); err != nil {
		t.Fatalf("%v, from %+v to %+v: %v", x, from, to, err)
	}
	if got := inHost(t, y); !slices.Equal(got, want) {
		t.Fatalf("%v to %v, from %+v to %+v: got %v, want %v", x, y, from, to, got, want)
	}
	if got := inHost(t, x); !slices.Equal(got, source) {
		t.Fatalf("%v to %v, from %+v to %+v: the source has become %v", x, y, from, to, got)
	}
}

// placed returns a tensor on a device with the given elements; on the processor it uses a copy of
// data.
func placed[T cohort.Number](t testing.TB, d *Device, data []T, shape []int) *Tensor[T] {
	t.Helper()
	x := must.Get(Of(slices.Clone(data), shape...))
	if d == CPU {
		return x
	}
	y := newOn[T](t, d, shape...)
	if err := Copy(y, x); err != nil {
		t.Fatal(err)
	}
	return y
}

// inHost returns the elements of a contiguous tensor.
func inHost[T cohort.Number](t testing.TB, x *Tensor[T]) []T {
	t.Helper()
	if x.dev == nil {
		return x.Data()
	}
	if x.n == 0 {
		return nil
	}
	return looked(t, x)
}

func TestCopyOnProcessor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 150 {
		shape := randomShape(r, 4, 5)
		for _, turned := range []bool{false, true} {
			copied[int8](t, r, shape, 2, turned, CPU, CPU)
			copied[uint16](t, r, shape, 2, turned, CPU, CPU)
			copied[float32](t, r, shape, 0, turned, CPU, CPU)
			copied[complex64](t, r, shape, 1, turned, CPU, CPU)
			copied[complex128](t, r, shape, 2, turned, CPU, CPU)
		}
	}
	for range 10 { // more than a tile, and more dimensions than there is room for at first
		copied[float64](t, r, []int{40 + r.IntN(40), 40 + r.IntN(40)}, 3, true, CPU, CPU)
		copied[cohort.Float16](t, r, []int{2, 33, 3, 34}, 1, true, CPU, CPU)
		copied[int16](t, r, []int{2, 1, 2, 2, 1, 2, 2, 2, 2, 2}, 1, true, CPU, CPU)
	}
}

// Several threads copy long memory, in parts that do not divide it evenly.
func TestBlitCopiesUnevenParts(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 2<<20 - 1, 3<<20 + 77, 5<<20 + 1} {
		src := make([]byte, n)
		for i := 0; i < n; i += 31 {
			src[i] = byte(1 + i%251)
		}
		dst := make([]byte, n)
		blit(dst, src)
		if !bytes.Equal(dst, src) {
			t.Errorf("%d bytes are not the same", n)
		}
		for parts := 2; parts <= 5 && n >= 1<<16; parts++ {
			clear(dst)
			blitParts(dst, src, parts)
			if !bytes.Equal(dst, src) {
				t.Errorf("%d bytes in %d parts are not the same", n, parts)
			}
		}
	}
}

// Between every two places, with gaps and turned, of many bytes and of few.
func TestCopyBetweenDevices(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		devs, _ := softDevices(t, soft.Config{Devices: 2, Lazy: lazy, Seed: 3})
		others, _ := softDevices(t, soft.Config{Name: "other", Lazy: lazy, Seed: 4})
		places := []*Device{CPU, devs[0], devs[1], others[0]}
		r := rand.New(rand.NewPCG(2, 0))
		for _, dst := range places {
			for _, src := range places {
				if dst == CPU && src == CPU {
					continue
				}
				t.Run(fmt.Sprintf("lazy=%v/%v to %v", lazy, src, dst), func(t *testing.T) {
					for range 10 {
						shape := randomShape(r, 4, 4)
						copied[int8](t, r, shape, 2, true, dst, src)
						copied[float64](t, r, shape, 1, false, dst, src)
						copied[complex128](t, r, shape, 0, true, dst, src)
					}
					copied[complex128](t, r, []int{17001}, 0, false, dst, src)    // two pieces of pinned memory
					copied[complex128](t, r, []int{7, 10001}, 7, false, dst, src) // five pieces, with rows across their ends
					copied[int32](t, r, []int{13, 14, 15}, 0, true, dst, src)     // a transpose
				})
			}
		}
	}
}

// Long copies use several pieces, of which the last is short.
func TestLongCopyBetweenDevices(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{Devices: 2})
	const n = 11<<20 + 12345
	want := make([]uint8, n)
	for i := 0; i < n; i += 4093 { // one in each piece of a thread, and many more
		want[i] = uint8(1 + i%251)
	}
	x := must.Get(Of(want, n))
	near, far := newOn[uint8](t, devs[0], n), newOn[uint8](t, devs[1], n)
	back := must.Get(New[uint8](n))
	for _, c := range []struct{ dst, src *Tensor[uint8] }{{near, x}, {far, near}, {back, far}} {
		if err := Copy(c.dst, c.src); err != nil {
			t.Fatal(err)
		}
		if got := inHost(t, c.dst); !bytes.Equal(got, want) {
			t.Fatalf("%v to %v: not the same", c.src, c.dst)
		}
	}
}

func TestCopyRejectsWrongArguments(t *testing.T) {
	devs, driver := softDevices(t, soft.Config{})
	host := must.Get(New[float32](2, 3))
	flat := must.Get(New[float32](6))
	rows := must.Get(Strided(make([]float32, 3), []int{2, 3}, []int{0, 1}))
	far := newOn[float32](t, devs[0], 2, 3)
	many := newOn[float32](t, devs[0], mostPieces+1, 2)
	column := must.Get(many.Index(1, 1))
	long := must.Get(New[float32](mostPieces + 1))
	for _, c := range []struct {
		name     string
		dst, src *Tensor[float32]
		want     error
		says     []string
	}{
		{"another shape", flat, host, cohort.ErrCount, []string{"float32[2 3] on cpu", "float32[6] on cpu"}},
		{"another shape on a device", far, flat, cohort.ErrCount, []string{"float32[6] on cpu", "float32[2 3] on soft:0"}},
		{"rows that are one", rows, host, cohort.ErrBuffer, []string{"[0 1]"}},
		{"many pieces", long, column, cohort.ErrNotSupported, []string{"65537 separate pieces of 4 bytes", "[2]", "soft:0"}},
		{"to many pieces", column, long, cohort.ErrNotSupported, []string{"65537 separate pieces"}},
		{"many pieces within", column, column, cohort.ErrNotSupported, []string{"65537 separate pieces"}},
		{"the zero Tensor", &Tensor[float32]{}, host, cohort.ErrCount, nil},
	} {
		before := driver.Stats()
		err := Copy(c.dst, c.src)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", c.name, err, part)
			}
		}
		if after := driver.Stats(); after.ToHost != before.ToHost || after.ToDevice != before.ToDevice || after.Within != before.Within {
			t.Errorf("%s: something was copied", c.name)
		}
	}
	if err := Copy(rows, rows); !errors.Is(err, cohort.ErrBuffer) {
		t.Errorf("rows that are one to themselves: %v", err)
	}
	if err := Copy(host, rows); err != nil {
		t.Errorf("rows that are one as a source: %v", err)
	}
	if err := Copy(&Tensor[float32]{}, &Tensor[float32]{}); err != nil {
		t.Errorf("the zero Tensor: %v", err)
	}
}

// Tensors may share memory: the source is read before it is written.
func TestCopyOfOverlappingTensors(t *testing.T) {
	devs, driver := softDevices(t, soft.Config{})
	r := rand.New(rand.NewPCG(9, 0))
	for _, d := range []*Device{CPU, devs[0]} {
		for i := range 60 {
			shape := []int{1 + r.IntN(5), 1 + r.IntN(5)}
			// Two views of one tensor with interleaved elements, one of them sometimes transposed.
			base := []int{shape[0] + 3, shape[1] + 3}
			from := layout{shape, base, []int{r.IntN(3), r.IntN(3)}, []int{0, 1}}
			to := layout{shape, base, []int{r.IntN(3), r.IntN(3)}, []int{0, 1}}
			if shape[0] == shape[1] {
				to.order = []int{i % 2, 1 - i%2}
			}
			want := counting[int32](base[0] * base[1])
			x := placed(t, d, want, base)
			old := slices.Clone(want)
			for index := range indices(shape) {
				want[to.at(index)] = old[from.at(index)]
			}
			if err := Copy(viewOf(t, &to, x), viewOf(t, &from, x)); err != nil {
				t.Fatal(err)
			}
			if got := inHost(t, x); !slices.Equal(got, want) {
				t.Fatalf("%v, from %+v to %+v: got %v, want %v", d, from, to, got, want)
			}
		}
		for _, by := range []int{-70000, -1, 0, 1, 70000} { // contiguous, forwards and backwards
			const n = 600000
			want := counting[int32](n)
			x := placed(t, d, want, []int{n})
			lo, hi := max(0, -by), n-max(0, by)
			copy(want[lo+by:hi+by], slices.Clone(want[lo:hi]))
			from := must.Get(x.Sub(0, lo, hi))
			to := must.Get(x.Sub(0, lo+by, hi+by))
			if err := Copy(to, from); err != nil {
				t.Fatal(err)
			}
			if got := inHost(t, x); !slices.Equal(got, want) {
				t.Errorf("%v, moved by %d: not the same", d, by)
			}
		}
	}
	if v := driver.Stats().Violations; len(v) > 0 {
		t.Error(v)
	}
}

func TestToCopiesBetweenDevices(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{Devices: 2})
	x := must.Get(Of(counting[int32](12), 3, 4))
	turned := must.Get(x.Transpose())
	want := listed(t, turned)
	at := turned
	for _, d := range []*Device{devs[0], devs[1], CPU, CPU, nil, devs[1], devs[1], CPU} {
		next := must.Get(at.To(d))
		if d == nil {
			d = CPU
		}
		if next.Device() != d || !next.IsContiguous() || !slices.Equal(next.Shape(), []int{4, 3}) {
			t.Errorf("got %v with the strides %v on %v", next, next.Strides(), d)
		}
		if err := at.Close(); err != nil {
			t.Error(err)
		}
		at = next
	}
	if !slices.Equal(at.Data(), want) {
		t.Errorf("after a round of devices it has %v, want %v", at.Data(), want)
	}
	empty := must.Get(New[int32](0, 3))
	if y, err := empty.To(devs[0]); err != nil || y.Len() != 0 || y.Device() != devs[0] {
		t.Errorf("nothing on a device: %v, %v", y, err)
	}
}

// A column on a device, and a transpose, can be made contiguous there.
func TestCompactOnDevice(t *testing.T) {
	devs, driver := softDevices(t, soft.Config{})
	x := placed(t, devs[0], counting[int32](60), []int{3, 4, 5})
	host := must.Get(Of(counting[int32](60), 3, 4, 5))
	for name, view := range map[string]func(x *Tensor[int32]) (*Tensor[int32], error){
		"a part":  func(x *Tensor[int32]) (*Tensor[int32], error) { return x.Sub(1, 1, 3) },
		"a plane": func(x *Tensor[int32]) (*Tensor[int32], error) { return x.Index(2, 4) },
		"turned":  func(x *Tensor[int32]) (*Tensor[int32], error) { return x.Transpose() },
	} {
		v := must.Get(view(x))
		w := must.Get(view(host))
		packed, err := v.Compact()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if packed.Device() != devs[0] || !packed.IsContiguous() || !slices.Equal(looked(t, packed), listed(t, w)) {
			t.Errorf("%s: %v has %v, want %v", name, packed, looked(t, packed), listed(t, w))
		}
		if same, err := packed.Compact(); same != packed || err != nil {
			t.Errorf("%s: what is contiguous is copied, %v", name, err)
		}
		if err := packed.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := driver.Stats().Allocations; n != 1 {
		t.Errorf("there are %d allocations, want 1", n)
	}
}

func TestCopyDoesNotAllocate(t *testing.T) {
	x := must.Get(New[float32](100, 100))
	y := must.Get(New[float32](100, 100))
	turned := must.Get(x.Transpose())
	for name, src := range map[string]*Tensor[float32]{"contiguous": x, "turned": turned} {
		if n := testing.AllocsPerRun(100, func() {
			if err := Copy(y, src); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}
