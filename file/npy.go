package file

import (
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// npyType returns NumPy's name for T on this machine.
func npyType[T any]() (string, error) {
	t := reflect.TypeFor[T]()
	kind := ""
	switch k := t.Kind(); {
	case t == reflect.TypeFor[cohort.Float16]():
		kind = "f"
	case t == reflect.TypeFor[cohort.BFloat16](): // not in NumPy
	case k == reflect.Bool:
		kind = "b"
	case k >= reflect.Int && k <= reflect.Int64:
		kind = "i"
	case k >= reflect.Uint && k <= reflect.Uintptr:
		kind = "u"
	case k == reflect.Float32, k == reflect.Float64:
		kind = "f"
	case k == reflect.Complex64, k == reflect.Complex128:
		kind = "c"
	}
	if kind == "" {
		return "", backend.Faultf(cohort.ErrType, "NumPy has no type for %v; want a bool or a number", t)
	}
	return simpleType("=" + kind + strconv.Itoa(int(t.Size()))), nil
}

// WriteNpy writes an array as a NumPy file. Each rank passes a part of it: the elements from starts on, subsizes in
// each dimension, as in [cohort.Subarray]. Elements that no rank passes keep what they were, 0 in a new file. NumPy
// reads the file with numpy.load.
//
// Collective: all ranks call it with the same type and sizes.
//
// Buffers: buf has the elements of the part in row-major order: the last dimension is contiguous.
//
// Errors: those of [WriteView]; [cohort.ErrType] for elements other than bool and numbers, and for BFloat16.
//
// Deadline: as for [File.WriteAtAll].
func WriteNpy[T any](f *File, buf []T, sizes, subsizes, starts []int) error {
	typ, bad := npyType[T]()
	header := Npy{Type: typ, Shape: sizes}.header()
	off := int64(len(header))
	all := cohort.Subarray(sizes, sizes, make([]int, len(sizes)))
	l := cohort.Subarray(sizes, subsizes, starts)
	if bad == nil {
		_, bad = regionOf(all, off, int64(view.Size[T]()))
	}
	if bad == nil && len(sizes) > npyMost {
		bad = backend.Faultf(cohort.ErrCount, "%d dimensions; NumPy has %d at most", len(sizes), npyMost)
	}
	if bad == nil {
		_, bad = viewRegion(buf, off, l)
	}
	h := fnv.New64a()
	h.Write(header)
	arg := int64(h.Sum64())
	err := f.each(opWriteNpy, arg, bad, false, func() error {
		if _, err := f.file.WriteAt(header, 0); err != nil {
			return err
		}
		return f.file.Truncate(off + int64(all.Len())*int64(view.Size[T]()))
	})
	if err != nil {
		return err
	}
	return transferView(f, opWriteNpy, buf, off, l, arg, nil)
}

// ReadNpy reads this rank's part of the array in a NumPy file, as [WriteNpy] writes it, or in the order of Fortran.
// [ReadNpyHeader] gives the shape.
//
// Collective: all ranks call it, each with its own subsizes and starts. The parts may overlap.
//
// Buffers: as for WriteNpy. For an array in the order of Fortran, memory for the part is allocated once more.
//
// Errors: those of [ReadView] and [ReadNpyHeader]; [cohort.ErrType] if the elements are of another type than T.
//
// Deadline: as for [File.ReadAtAll].
func ReadNpy[T any](f *File, buf []T, subsizes, starts []int) error {
	a, bad := parseNpy(f)
	typ, err := npyType[T]()
	switch {
	case bad != nil:
	case err != nil:
		bad = err
	case a.Type != typ:
		bad = backend.Faultf(cohort.ErrType, "the elements are %s, want %s for %v", a.Type, typ, reflect.TypeFor[T]())
	}
	if bad != nil || !a.Fortran {
		return transferView(f, opReadNpy, buf, a.Off, cohort.Subarray(a.Shape, subsizes, starts), 0, bad)
	}
	// The array in the order of Fortran is the transposed one in the order of C.
	l := cohort.Subarray(reversed(a.Shape), reversed(subsizes), reversed(starts))
	part := make([]T, len(buf))
	if err := transferView(f, opReadNpy, part, a.Off, l, 0, nil); err != nil {
		return err
	}
	transpose(buf, part, subsizes)
	return nil
}

func reversed(s []int) []int {
	r := slices.Clone(s)
	slices.Reverse(r)
	return r
}

// transpose copies an array of some sizes from the order of Fortran to that of C.
func transpose[T any](c, fortran []T, sizes []int) {
	strides, at := make([]int, len(sizes)), make([]int, len(sizes)) // in fortran, and the index of the next element
	stride := 1
	for i, n := range sizes {
		strides[i] = stride
		stride *= n
	}
	from := 0
	for k := range c {
		c[k] = fortran[from]
		for i := len(sizes) - 1; i >= 0; i-- {
			from += strides[i]
			if at[i]++; at[i] < sizes[i] {
				break
			}
			from -= at[i] * strides[i]
			at[i] = 0
		}
	}
}
