package file

import (
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
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
	Shape   []int  // of no dimensions for a single element
	Fortran bool   // the first dimension is contiguous, not the last
	Off     int64  // of the first element, in bytes
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

// ReadNpyHeader reads the header of a NumPy file, for example to learn the array's shape.
//
// Not collective.
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
	m := npyHeader.FindSubmatch(text)
	if m == nil || slices.ContainsFunc(m, func(entry []byte) bool { return entry == nil }) { // another one is there twice
		return a, backend.Faultf(cohort.ErrType, "this is not an array of one simple type: its header is %q", text)
	}
	a = Npy{Type: simpleType(string(m[1])), Shape: []int{}, Fortran: string(m[2]) == "True", Off: off + n}
	for _, s := range npyLength.FindAllString(string(m[3]), -1) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return Npy{}, backend.Faultf(cohort.ErrType, "the shape in the header has a dimension of %s", s)
		}
		a.Shape = append(a.Shape, n)
	}
	return a, nil
}

// A header is a Python dictionary of three entries, in any order. Python 2 writes an L behind long numbers. The headers of
// structures do not match, whatever their fields are called.
var (
	npyHeader = regexp.MustCompile(`^\s*\{\s*(?:(?:` +
		`['"]descr['"]\s*:\s*['"]([^'"\\]*)['"]|` +
		`['"]fortran_order['"]\s*:\s*(True|False)|` +
		`['"]shape['"]\s*:\s*\(((?:\s*\d+L?\s*,)*\s*(?:\d+L?)?)\s*\)` +
		`)\s*,?\s*){3}\}[\s\x00]*$`)
	npyLength = regexp.MustCompile(`\d+`)
)

// simpleType returns the name that NumPy writes for a type: with the byte order of this machine for the native one,
// and with none for single bytes.
func simpleType(descr string) string {
	order, rest := descr[:min(1, len(descr))], descr[min(1, len(descr)):]
	switch order {
	case "<", ">", "|":
	case "=":
		order = nativeOrder
	default:
		order, rest = nativeOrder, descr
	}
	if len(rest) == 2 && rest[1] == '1' {
		order = "|"
	}
	return order + rest
}

// nativeOrder is NumPy's name for the byte order of this machine.
var nativeOrder = map[bool]string{true: "<", false: ">"}[binary.NativeEndian.Uint16([]byte{1, 0}) == 1]
