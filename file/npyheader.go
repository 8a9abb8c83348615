package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
	npyNested  = 100     // tuples and lists inside each other in a header
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
	l := literal{text: string(text)}
	entries, err := l.dictionary()
	if err == nil && strings.Trim(l.text, " \t\r\n\x00") != "" {
		err = fmt.Errorf("%.20q stands behind the dictionary", l.text)
	}
	if err != nil {
		return a, backend.Faultf(cohort.ErrType, "the header is not a Python dictionary: %v: %q", err, text)
	}
	descr, simple := entries["descr"].(string)
	fortran, ok := entries["fortran_order"].(bool)
	shape, isTuple := entries["shape"].([]any)
	if !simple || !ok || !isTuple || len(entries) != 3 {
		return a, backend.Faultf(cohort.ErrType, "this is not an array of one simple type: its header is %q", text)
	}
	a = Npy{Type: simpleType(descr), Shape: []int{}, Fortran: fortran, Off: off + n}
	for _, s := range shape {
		n, ok := s.(int)
		if !ok || n < 0 {
			return Npy{}, backend.Faultf(cohort.ErrType, "the shape in the header has a dimension of %v", s)
		}
		a.Shape = append(a.Shape, n)
	}
	return a, nil
}

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

// literal is the rest of a Python literal: dictionaries, tuples, lists, strings, integers, True and False.
type literal struct {
	text  string
	depth int
}

var errLiteral = errors.New("no Python literal")

// next skips white space, and takes one of the bytes in set. It returns 0 if none of them is next.
func (l *literal) next(set string) byte {
	l.text = strings.TrimLeft(l.text, " \t\r\n")
	if l.text == "" || !strings.Contains(set, l.text[:1]) {
		return 0
	}
	c := l.text[0]
	l.text = l.text[1:]
	return c
}

func (l *literal) dictionary() (map[string]any, error) {
	if l.next("{") == 0 {
		return nil, errLiteral
	}
	entries := map[string]any{}
	for l.next("}") == 0 {
		key, err := l.value()
		name, ok := key.(string)
		if err != nil || !ok || l.next(":") == 0 {
			return nil, fmt.Errorf("%w at %.20q", errLiteral, l.text)
		}
		if entries[name], err = l.value(); err != nil {
			return nil, err
		}
		if l.next(",") == 0 && !strings.HasPrefix(strings.TrimLeft(l.text, " \t\r\n"), "}") {
			return nil, fmt.Errorf("%w at %.20q", errLiteral, l.text)
		}
	}
	return entries, nil
}

// value reads a string, a bool, an int, or a tuple or list of values. An int may end with L, as in Python 2.
func (l *literal) value() (any, error) {
	switch c := l.next(`'"([`); c {
	case '\'', '"':
		return l.string(c)
	case '(', '[':
		return l.sequence(map[byte]string{'(': ")", '[': "]"}[c])
	}
	n := strings.IndexFunc(l.text, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-')
	})
	name := l.text[:max(n, 0)]
	l.text = l.text[len(name):]
	switch name {
	case "True", "False":
		return name == "True", nil
	}
	i, err := strconv.Atoi(strings.TrimSuffix(name, "L"))
	if err != nil {
		return nil, fmt.Errorf("%w at %.20q", errLiteral, name+l.text)
	}
	return i, nil
}

// string reads the rest of a string. A backslash keeps the byte behind it, which is exact for quotes and backslashes.
func (l *literal) string(quote byte) (string, error) {
	var b strings.Builder
	for i := 0; i < len(l.text); i++ {
		switch c := l.text[i]; {
		case c == quote:
			l.text = l.text[i+1:]
			return b.String(), nil
		case c == '\\' && i+1 < len(l.text):
			i++
			b.WriteByte(l.text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("%w: a string does not end", errLiteral)
}

func (l *literal) sequence(end string) (list []any, err error) {
	if l.depth++; l.depth > npyNested {
		return nil, fmt.Errorf("%w: too many brackets", errLiteral)
	}
	defer func() { l.depth-- }()
	list = []any{}
	for l.next(end) == 0 {
		v, err := l.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if l.next(",") == 0 && !strings.HasPrefix(strings.TrimLeft(l.text, " \t\r\n"), end) {
			return nil, fmt.Errorf("%w at %.20q", errLiteral, l.text)
		}
	}
	return slices.Clip(list), nil
}
