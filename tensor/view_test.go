package tensor

import (
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// counting returns n numbers: 0, 1, 2, …
func counting[T cohort.Number](n int) []T {
	data := make([]T, n)
	var next T
	for i := range data {
		data[i] = next
		next++
	}
	return data
}

// indices yields all indices of a shape in row-major order, in the same slice.
func indices(shape []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		index := make([]int, len(shape))
		if slices.Contains(shape, 0) {
			return
		}
		for dim := 0; dim >= 0; {
			if !yield(index) {
				return
			}
			for dim = len(shape) - 1; dim >= 0; dim-- {
				if index[dim]++; index[dim] < shape[dim] {
					break
				}
				index[dim] = 0
			}
		}
	}
}

// listed returns the elements of a tensor on the processor in row-major order, one by one.
func listed[T cohort.Number](t testing.TB, x *Tensor[T]) []T {
	t.Helper()
	list := []T{}
	for i := range indices(x.Shape()) {
		v := must.Get(x.Elem(i...))
		list = append(list, v)
	}
	return list
}

func TestViewsSelectElements(t *testing.T) {
	type view = func(x *Tensor[int]) (*Tensor[int], error)
	for _, c := range []struct {
		name  string
		shape []int // of a tensor of 0, 1, 2, …
		view  view
		want  []int // its shape
		elems []int
	}{
		{"Reshape", []int{2, 3}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Reshape(3, 2) }, []int{3, 2}, []int{0, 1, 2, 3, 4, 5}},
		{"Reshape to none", []int{1, 1}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Reshape() }, []int{}, []int{0}},
		{"Reshape of nothing", []int{0, 3}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Reshape(5, 0) }, []int{5, 0}, []int{}},
		{"Sub of rows", []int{4, 2}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Sub(0, 1, 3) }, []int{2, 2}, []int{2, 3, 4, 5}},
		{"Sub of columns", []int{2, 4}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Sub(1, 1, 3) }, []int{2, 2}, []int{1, 2, 5, 6}},
		{"Sub of all", []int{2, 2}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Sub(1, 0, 2) }, []int{2, 2}, []int{0, 1, 2, 3}},
		{"Sub of nothing", []int{2, 4}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Sub(1, 4, 4) }, []int{2, 0}, []int{}},
		{"Index of a row", []int{2, 3}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Index(0, 1) }, []int{3}, []int{3, 4, 5}},
		{"Index of a column", []int{2, 3}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Index(1, 2) }, []int{2}, []int{2, 5}},
		{"Index to none", []int{3}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Index(0, 2) }, []int{}, []int{2}},
		{"Index beside nothing", []int{3, 0}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Index(0, 2) }, []int{0}, []int{}},
		{"Transpose", []int{2, 3}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Transpose() }, []int{3, 2}, []int{0, 3, 1, 4, 2, 5}},
		{"Transpose of one", nil, func(x *Tensor[int]) (*Tensor[int], error) { return x.Transpose() }, []int{}, []int{0}},
		{"Permute", []int{2, 1, 3}, func(x *Tensor[int]) (*Tensor[int], error) { return x.Permute(2, 0, 1) }, []int{3, 2, 1}, []int{0, 3, 1, 4, 2, 5}},
		{"Permute of one", nil, func(x *Tensor[int]) (*Tensor[int], error) { return x.Permute() }, []int{}, []int{0}},
	} {
		n := 1
		for _, d := range c.shape {
			n *= d
		}
		x := must.Get(Of(counting[int](n), c.shape...))
		v, err := c.view(x)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(v.Shape(), c.want) || !slices.Equal(listed(t, v), c.elems) || v.Len() != len(c.elems) {
			t.Errorf("%s: shape %v, elements %v, want %v, %v", c.name, v.Shape(), listed(t, v), c.want, c.elems)
		}
		packed, err := v.Compact()
		if err != nil || !packed.IsContiguous() || !slices.Equal(packed.Data(), c.elems) || (packed == v) != v.IsContiguous() {
			t.Errorf("%s: Compact has %v, %v, want %v", c.name, packed.Data(), err, c.elems)
		}
		if v.Len() == 0 {
			continue
		}
		// A view shares memory.
		if err := v.SetElem(-1, make([]int, len(c.want))...); err != nil || x.Data()[c.elems[0]] != -1 {
			t.Errorf("%s: its first element is not element %d of the tensor", c.name, c.elems[0])
		}
	}
}

func TestViewsRejectWrongArguments(t *testing.T) {
	x := must.Get(New[float32](2, 3))
	turned := must.Get(x.Transpose())
	for _, c := range []struct {
		name string
		view func() (*Tensor[float32], error)
		want error
	}{
		{"another number", func() (*Tensor[float32], error) { return x.Reshape(7) }, cohort.ErrCount},
		{"a negative length", func() (*Tensor[float32], error) { return x.Reshape(-2, -3) }, cohort.ErrCount},
		{"not contiguous", func() (*Tensor[float32], error) { return turned.Reshape(6) }, cohort.ErrBuffer},
		{"no such dimension", func() (*Tensor[float32], error) { return x.Sub(2, 0, 0) }, cohort.ErrCount},
		{"a negative dimension", func() (*Tensor[float32], error) { return x.Sub(-1, 0, 0) }, cohort.ErrCount},
		{"from below", func() (*Tensor[float32], error) { return x.Sub(0, -1, 1) }, cohort.ErrCount},
		{"to above", func() (*Tensor[float32], error) { return x.Sub(0, 1, 3) }, cohort.ErrCount},
		{"backwards", func() (*Tensor[float32], error) { return x.Sub(1, 2, 1) }, cohort.ErrCount},
		{"an index below", func() (*Tensor[float32], error) { return x.Index(0, -1) }, cohort.ErrCount},
		{"an index above", func() (*Tensor[float32], error) { return x.Index(1, 3) }, cohort.ErrCount},
		{"of no dimension", func() (*Tensor[float32], error) { return x.Index(2, 0) }, cohort.ErrCount},
		{"twice the same", func() (*Tensor[float32], error) { return x.Permute(1, 1) }, cohort.ErrCount},
		{"too few", func() (*Tensor[float32], error) { return x.Permute(0) }, cohort.ErrCount},
		{"none", func() (*Tensor[float32], error) { return x.Permute() }, cohort.ErrCount},
		{"too many", func() (*Tensor[float32], error) { return x.Permute(0, 1, 2) }, cohort.ErrCount},
		{"out of range", func() (*Tensor[float32], error) { return x.Permute(0, 2) }, cohort.ErrCount},
	} {
		if v, err := c.view(); !errors.Is(err, c.want) || v != nil {
			t.Errorf("%s: %v, %v, want %v", c.name, v, err, c.want)
		}
	}
}

// The rows of a tensor without elements may be as far apart as they like: its parts have no elements either.
func TestViewsOfTensorWithoutElements(t *testing.T) {
	x := must.Get(Strided([]int32{}, []int{4, 0}, []int{math.MaxInt/2 + 1, 1}))
	if v, err := x.Sub(0, 3, 4); err != nil || v.Len() != 0 {
		t.Errorf("Sub: %v, %v", v, err)
	}
	if v, err := x.Index(0, 3); err != nil || v.Len() != 0 {
		t.Errorf("Index: %v, %v", v, err)
	}
}

// A layout describes a view of a contiguous tensor, as Sub and Permute make it. A formula gives the
// tensor's element at each index of the view.
type layout struct {
	shape []int // of the view
	base  []int // of the tensor
	lo    []int // start of the view in each dimension of the tensor
	order []int // dimension i of the view is dimension order[i] of the tensor
}

// randomLayout returns a layout of a shape with at most gaps unused indices in each dimension.
func randomLayout(r *rand.Rand, shape []int, gaps int, turned bool) layout {
	k := len(shape)
	l := layout{shape: shape, base: make([]int, k), lo: make([]int, k), order: make([]int, k)}
	for i := range l.order {
		l.order[i] = i
	}
	if turned {
		l.order = r.Perm(k)
	}
	for i, from := range l.order {
		l.lo[from] = r.IntN(gaps + 1)
		l.base[from] = l.lo[from] + shape[i] + r.IntN(gaps+1)
	}
	return l
}

// size returns the number of elements of the tensor.
func (l *layout) size() int {
	n := 1
	for _, d := range l.base {
		n *= d
	}
	return n
}

// at returns the tensor's element at an index of the view.
func (l *layout) at(index []int) int {
	stride, at := 1, 0
	for dim := len(l.base) - 1; dim >= 0; dim-- {
		at += stride * (l.lo[dim] + index[slices.Index(l.order, dim)])
		stride *= l.base[dim]
	}
	return at
}

// viewOf returns the view of a tensor.
func viewOf[T cohort.Number](t testing.TB, l *layout, x *Tensor[T]) *Tensor[T] {
	t.Helper()
	for i, dim := range l.order {
		x = must.Get(x.Sub(dim, l.lo[dim], l.lo[dim]+l.shape[i]))
	}
	x = must.Get(x.Permute(l.order...))
	return x
}

func randomShape(r *rand.Rand, dims, most int) []int {
	shape := make([]int, r.IntN(dims+1))
	for i := range shape {
		shape[i] = r.IntN(most + 1)
		if r.IntN(8) > 0 {
			shape[i] = max(shape[i], 1)
		}
	}
	return shape
}

// Views of views have the elements of their layouts, on the processor and on a device.
func TestRandomViewsHaveElementsOfTheirLayouts(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{})
	r := rand.New(rand.NewPCG(6, 0))
	for i := range 300 {
		l := randomLayout(r, randomShape(r, 4, 4), 2, true)
		x := must.Get(Of(counting[int64](l.size()), l.base...))
		v := viewOf(t, &l, x)
		if !slices.Equal(v.Shape(), l.shape) {
			t.Fatalf("%d: %+v: the shape is %v", i, l, v.Shape())
		}
		for index := range indices(l.shape) {
			if got, err := v.Elem(index...); err != nil || got != int64(l.at(index)) {
				t.Fatalf("%d: %+v: element %v is %d, %v, want %d", i, l, index, got, err, l.at(index))
			}
		}
		if i%10 != 0 || v.Len() == 0 {
			continue
		}
		y := newOn[int64](t, devs[0], l.base...)
		u := viewOf(t, &l, y)
		if want := y.Address() + uintptr(8*l.at(make([]int, len(l.shape)))); u.Address() != want || !slices.Equal(u.Strides(), v.Strides()) {
			t.Fatalf("%d: %+v: on a device it is at %#x with strides %v, want %#x, %v", i, l, u.Address(), u.Strides(), want, v.Strides())
		}
	}
}

// FuzzViews makes views of views. Their elements are inside the tensor, and Compact has the same
// elements.
func FuzzViews(f *testing.F) {
	f.Add([]byte{3, 4, 5, 2, 0, 1, 3, 1, 2, 2, 3, 0})
	f.Add([]byte{2, 2, 2, 3, 3, 0, 1, 0, 1})
	f.Add([]byte{0, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		next := func() int {
			if len(ops) == 0 {
				return 0
			}
			b := ops[0]
			ops = ops[1:]
			return int(b)
		}
		shape := []int{next() % 6, next() % 6, next() % 6}
		x := must.Get(Of(counting[int16](shape[0]*shape[1]*shape[2]), shape...))
		for len(ops) > 0 {
			var v *Tensor[int16]
			var err error
			switch op := next() % 5; op {
			case 0:
				v, err = x.Sub(next()%4-1, next()%7-1, next()%7-1)
			case 1:
				v, err = x.Index(next()%4-1, next()%7-1)
			case 2:
				v, err = x.Permute(next()%3, next()%3, next()%3)
			case 3:
				v, err = x.Transpose()
			case 4:
				v, err = x.Reshape(next()%7-1, next()%7-1)
			}
			if err == nil {
				x = v
			} else if !errors.Is(err, cohort.ErrCount) && !errors.Is(err, cohort.ErrBuffer) {
				t.Fatal(err)
			}
		}
		list := listed(t, x)
		sorted := slices.Clone(list)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != len(list) {
			t.Fatalf("%v with the strides %v has elements twice: %v", x, x.Strides(), list)
		}
		if !distinct(x.shape, x.strides) {
			t.Fatalf("%v with the strides %v: a view of a contiguous tensor cannot be written", x, x.Strides())
		}
		packed, err := x.Compact()
		if err != nil || !slices.Equal(packed.Data(), list) {
			t.Fatalf("%v with the strides %v: Compact has %v, %v, want %v", x, x.Strides(), packed.Data(), err, list)
		}
	})
}

// If distinct returns true, no two elements share memory; and it returns true for every view of a
// contiguous tensor.
func TestDistinctRecognizesViews(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	yes := 0
	for range 2000 {
		shape := randomShape(r, 3, 4)
		strides := make([]int, len(shape))
		for i := range strides {
			strides[i] = r.IntN(12)
		}
		seen, twice := make(map[int]bool), false
		for index := range indices(shape) {
			at := 0
			for i, k := range index {
				at += k * strides[i]
			}
			twice = twice || seen[at]
			seen[at] = true
		}
		got := distinct(shape, strides)
		if got && twice {
			t.Fatalf("shape %v with strides %v has two elements at one place", shape, strides)
		}
		if got {
			yes++
		}
	}
	if yes < 200 {
		t.Errorf("only %d of 2000 are distinct", yes)
	}
	for range 500 {
		l := randomLayout(r, randomShape(r, 4, 4), 2, true)
		x := must.Get(New[uint8](l.base...))
		if v := viewOf(t, &l, x); !distinct(v.shape, v.strides) {
			t.Fatalf("%v with strides %v is a view of a contiguous tensor", v, v.strides)
		}
	}
}
