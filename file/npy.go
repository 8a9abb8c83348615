package file

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// The format of NumPy's files: numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
const (
	npyMagic   = "\x93NUMPY"
	npyAlign   = 64      // the data begin at a multiple of it
	npyLongest = 1 << 20 // a longer header is not read
	npyMost    = 64      // dimensions, in NumPy 2
)

// Npy is the header of a NumPy file.
type Npy struct {
	Type    string // NumPy's name for the type of the elements, such as "<f8"
	Shape   []int
	Fortran bool  // the first dimension is contiguous, not the last
	Off     int64 // of the first element, in bytes
}

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
	order := "<"
	switch {
	case t.Size() == 1:
		order = "|"
	case binary.NativeEndian.Uint16([]byte{1, 0}) != 1:
		order = ">"
	}
	return order + kind + strconv.Itoa(int(t.Size())), nil
}

// header returns the bytes before the elements.
func (a Npy) header() []byte {
	var shape strings.Builder
	for _, n := range a.Shape {
		fmt.Fprintf(&shape, "%d, ", n)
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", a.Type, strings.TrimSuffix(shape.String(), " "))
	const before = len(npyMagic) + 4
	n := (before+len(text)+npyAlign)/npyAlign*npyAlign - before // with a line break
	b := binary.LittleEndian.AppendUint16([]byte(npyMagic+"\x01\x00"), uint16(n))
	return append(b, fmt.Sprintf("%-*s\n", n-1, text)...)
}

// The entries of the dictionary in a header.
var (
	npyDescr   = regexp.MustCompile(`'descr'\s*:\s*'([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	npyShape   = regexp.MustCompile(`'shape'\s*:\s*\(([0-9L,\s]*)\)`)
)

// ReadNpyHeader reads the header of a NumPy file, for example to learn the array's shape.
//
// Local.
//
// Errors: [cohort.ErrType] if it is not a NumPy file, or if its elements are structures; those of [File.ReadAt].
func ReadNpyHeader(f *File) (Npy, error) {
	a, err := parseNpy(f)
	if err != nil {
		return a, f.on(opReadNpyHeader).fault(0, 0, err)
	}
	return a, nil
}

// parseNpy reads the header of a file.
func parseNpy(f io.ReaderAt) (a Npy, err error) {
	head := make([]byte, len(npyMagic)+6)
	got, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return a, err
	}
	at := len(npyMagic) + 2
	n := int64(binary.LittleEndian.Uint16(head[at:]))
	off := int64(at) + 2
	if head[len(npyMagic)] > 1 {
		n = int64(binary.LittleEndian.Uint32(head[at:]))
		off += 2
	}
	if string(head[:len(npyMagic)]) != npyMagic || n > npyLongest {
		return a, backend.Faultf(cohort.ErrType, "this is not a NumPy file: it begins with %q", head[:got])
	}
	text := make([]byte, n)
	if _, err := f.ReadAt(text, off); err != nil && err != io.EOF {
		return a, err
	}
	descr, fortran, shape := npyDescr.FindSubmatch(text), npyFortran.FindSubmatch(text), npyShape.FindSubmatch(text)
	if descr == nil || fortran == nil || shape == nil {
		return a, backend.Faultf(cohort.ErrType, "this is not an array of one simple type: its header is %q", text)
	}
	a = Npy{Type: string(descr[1]), Fortran: string(fortran[1]) == "True", Off: off + n}
	for s := range strings.SplitSeq(string(shape[1]), ",") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), "L"); s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			return Npy{}, backend.Faultf(cohort.ErrType, "the shape in its header: %v", err)
		}
		a.Shape = append(a.Shape, n)
	}
	return a, nil
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

// ReadNpy reads this rank's part of the array in a NumPy file, as [WriteNpy] writes it. [ReadNpyHeader] gives the
// shape.
//
// Collective: all ranks call it, each with its own subsizes and starts. The parts may overlap.
//
// Buffers: as for WriteNpy.
//
// Errors: those of [ReadView] and [ReadNpyHeader]; [cohort.ErrType] if the elements are of another type than T;
// [cohort.ErrNotSupported] for an array in the order of Fortran.
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
	case a.Fortran:
		bad = backend.Faultf(cohort.ErrNotSupported, "the array is in the order of Fortran; save numpy.ascontiguousarray of it")
	}
	return transferView(f, opReadNpy, buf, a.Off, cohort.Subarray(a.Shape, subsizes, starts), 0, bad)
}
