package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// withNumPy is a Python that has NumPy, or "".
var withNumPy = sync.OnceValue(func() string {
	for _, p := range []string{"/usr/bin/python3", "python3"} { // where Debian's package is, first
		if exec.Command(p, "-c", "import numpy").Run() == nil {
			return p
		}
	}
	return ""
})

// python returns a Python that has NumPy.
func python(t *testing.T) string {
	t.Helper()
	if p := withNumPy(); p != "" {
		return p
	}
	need.Missing(t, "needs a Python with NumPy: apt-get install python3-numpy")
	return ""
}

// numpy runs a program and returns what it prints.
func numpy(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(python(t), append([]string{"-c", "import sys, numpy as np\n" + program}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// writeParts has three ranks write an array of 4 by 3 elements, in columns.
func writeParts[T any](t *testing.T, name string, elem func(i int) T) {
	t.Helper()
	err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
		f, err := Open(world, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		mine := make([]T, 4)
		for i := range mine {
			mine[i] = elem(3*i + world.Rank())
		}
		return errors.Join(WriteNpy(f, mine, []int{4, 3}, []int{4, 1}, []int{0, world.Rank()}), f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// NumPy reads arrays of every type, with the same values.
func TestNumpyReadsWhatRanksWrite(t *testing.T) {
	dir := t.TempDir()
	var want []string
	next := func(line string) string {
		want = append(want, line)
		return filepath.Join(dir, fmt.Sprintf("%d.npy", len(want)))
	}
	writeParts(t, next("float64 (4, 3) [-1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5]"), func(i int) float64 { return float64(i) - 1.5 })
	writeParts(t, next("float32 (4, 3) [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5]"), func(i int) float32 { return float32(i) / 2 })
	writeParts(t, next("float16 (4, 3) [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5]"), func(i int) cohort.Float16 { return cohort.ToFloat16(float32(i) / 2) })
	writeParts(t, next("int8 (4, 3) [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6]"), func(i int) int8 { return int8(i - 5) })
	writeParts(t, next("uint16 (4, 3) [0, 300, 600, 900, 1200, 1500, 1800, 2100, 2400, 2700, 3000, 3300]"), func(i int) uint16 { return uint16(300 * i) })
	writeParts(t, next("int64 (4, 3) [0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11]"), func(i int) int64 { return int64(-i) })
	writeParts(t, next("bool (4, 3) [True, False, False, True, False, False, True, False, False, True, False, False]"), func(i int) bool { return i%3 == 0 })
	writeParts(t, next("complex128 (4, 3) [1j, (1+1j), (2+1j), (3+1j), (4+1j), (5+1j), (6+1j), (7+1j), (8+1j), (9+1j), (10+1j), (11+1j)]"),
		func(i int) complex128 { return complex(float64(i), 1) })
	got := numpy(t, `for i in range(1, 9):
	a = np.load(sys.argv[1] + "/%d.npy" % i)
	print(a.dtype, a.shape, a.ravel().tolist())`, dir)
	if got != strings.Join(want, "\n") {
		t.Errorf("NumPy reads\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// Ranks read what NumPy writes.
func TestRanksReadWhatNumpyWrites(t *testing.T) {
	dir := t.TempDir()
	numpy(t, `import os; os.chdir(sys.argv[1]); i4 = np.int32
np.save("3d", np.arange(60, dtype=i4).reshape(3, 4, 5))
np.lib.format.write_array(open("version2.npy", "wb"), np.arange(7, dtype=i4), version=(2, 0))
np.save("fortran", np.asfortranarray(np.arange(6, dtype=i4).reshape(2, 3)))
np.save("other-order", np.arange(6, dtype=">i4" if sys.byteorder == "little" else "<i4").reshape(2, 3))
np.save("int64", np.arange(6, dtype=np.int64).reshape(2, 3))
np.save("struct", np.zeros((2, 3), dtype=[("x", i4)]))
np.save("small", np.zeros((2, 2), dtype=i4))`, dir)
	for _, c := range []struct {
		name             string
		subsizes, starts []int
		want             []int32
		err              error
	}{
		{"3d", []int{1, 2, 3}, []int{2, 1, 2}, []int32{47, 48, 49, 52, 53, 54}, nil},
		{"version2", []int{2}, []int{5}, []int32{5, 6}, nil},
		{"fortran", []int{2, 2}, []int{0, 1}, []int32{1, 2, 4, 5}, nil},
		{"other-order", []int{2, 3}, []int{0, 0}, nil, cohort.ErrType},
		{"int64", []int{2, 3}, []int{0, 0}, nil, cohort.ErrType},
		{"struct", []int{2, 3}, []int{0, 0}, nil, cohort.ErrType},
		{"small", []int{2, 3}, []int{0, 0}, nil, cohort.ErrCount},
	} {
		err := cohort.Run(t.Context(), 1, func(world *cohort.Comm) error {
			f, err := Open(world, filepath.Join(dir, c.name+".npy"), os.O_RDONLY, 0)
			if err != nil {
				return err
			}
			got := make([]int32, 6)
			if c.err == nil {
				got = got[:len(c.want)]
			}
			if err = ReadNpy(f, got, c.subsizes, c.starts); !errors.Is(err, c.err) || err == nil && !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, %v; want %v, %v", c.name, got, err, c.want, c.err)
			}
			return f.Close()
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// npyFile returns a NumPy file of float64 with a header that NumPy reads, though it does not write it.
func npyFile(t *testing.T, header string, data ...float64) string {
	t.Helper()
	header += strings.Repeat(" ", 64-(10+len(header)+1)%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	b = append(b, header...)
	for _, x := range data {
		b = binary.NativeEndian.AppendUint64(b, math.Float64bits(x))
	}
	name := filepath.Join(t.TempDir(), "a.npy")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Every header that the format allows is read. NumPy reads the same ones.
func TestRanksReadEveryLegalHeader(t *testing.T) {
	native := nativeOrder + "f8"
	var names, files []string
	for name, header := range map[string]string{
		"Fortran, one dimension": "{'descr': '" + native + "', 'fortran_order': True, 'shape': (3,), }",
		"Fortran, a column":      "{'descr': '" + native + "', 'fortran_order': True, 'shape': (3, 1), }",
		"double quotes":          `{"descr": "` + native + `", "fortran_order": False, "shape": (3,), }`,
		"native order":           "{'descr': '=f8', 'fortran_order': False, 'shape': (3,), }",
		"no order":               "{'descr': 'f8', 'fortran_order': False, 'shape': (3,), }",
		"other order of keys":    "{'shape':(3,),'descr':'" + native + "','fortran_order':False}",
	} {
		file := npyFile(t, header, 1, 2, 3)
		names, files = append(names, name), append(files, file)
		err := cohort.Run(t.Context(), 1, func(world *cohort.Comm) error {
			f, err := Open(world, file, os.O_RDONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			h, err := ReadNpyHeader(f)
			if err != nil {
				return err
			}
			got := make([]float64, 3)
			if err := ReadNpy(f, got, h.Shape, make([]int, len(h.Shape))); err != nil || !slices.Equal(got, []float64{1, 2, 3}) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	got := strings.Split(numpy(t, "for f in sys.argv[1:]: print(np.load(f).ravel().tolist())", files...), "\n")
	for i, name := range names {
		if len(got) != len(names) || got[i] != "[1.0, 2.0, 3.0]" {
			t.Errorf("%s: NumPy reads %s", name, got)
		}
	}
}

// A header is read as the Python literal that it is: text inside a string is no key.
func TestOtherHeadersAreErrors(t *testing.T) {
	for name, header := range map[string]string{
		"structure with keys in a name": `{'descr': [("'descr': '<f8'", '<i8')], 'fortran_order': False, 'shape': (3,), }`,
		"key inside a string":           `{"x": "'descr': '<f8'", 'fortran_order': False, 'shape': (3,), }`,
		"text behind it":                "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), } x",
		"negative dimension":            "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }",
		"shape is a number":             "{'descr': '<f8', 'fortran_order': False, 'shape': 3, }",
		"shape of bools":                "{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }",
		"no end":                        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,",
		"no end of a string":            "{'descr': '<f8",
		"deep":                          "{'descr': " + strings.Repeat("(", 10000),
		"a call":                        "{'descr': f(), 'fortran_order': False, 'shape': (3,), }",
	} {
		b, err := os.ReadFile(npyFile(t, header))
		if err != nil {
			t.Fatal(err)
		}
		if a, err := parseNpy(bytes.NewReader(b)); !errors.Is(err, cohort.ErrType) {
			t.Errorf("%s: %+v, %v; want %v", name, a, err, cohort.ErrType)
		}
	}
}

// randomShape returns up to four dimensions with up to 6 elements each.
func randomShape(r *rand.Rand) (shape []int, n int) {
	shape, n = make([]int, r.IntN(5)), 1
	for i := range shape {
		shape[i] = r.IntN(7)
		n *= shape[i]
	}
	return shape, n
}

func tuple(shape []int) string {
	var b strings.Builder
	for _, n := range shape {
		fmt.Fprintf(&b, "%d,", n)
	}
	return "(" + b.String() + ")"
}

// readsAndWrites reads a random part of an array whose element i, in the order of C, is i, and writes the array.
func readsAndWrites[T int8 | int64 | float32 | float64 | uint16](t *testing.T, r *rand.Rand, in, out string, shape []int, n int) {
	t.Helper()
	sub, starts := slices.Clone(shape), make([]int, len(shape))
	for i, k := range shape {
		starts[i] = r.IntN(k + 1)
		sub[i] = r.IntN(k - starts[i] + 1)
	}
	var want []T
	for i := range n { // of the whole array, those inside the part
		inside, rest := true, i
		for d := len(shape) - 1; d >= 0; d-- {
			at := rest % shape[d]
			rest /= shape[d]
			inside = inside && at >= starts[d] && at < starts[d]+sub[d]
		}
		if inside {
			want = append(want, T(i))
		}
	}
	all := make([]T, n)
	for i := range all {
		all[i] = T(i)
	}
	err := cohort.Run(t.Context(), 1, func(world *cohort.Comm) error {
		f, err := Open(world, in, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		got := make([]T, len(want))
		if err := ReadNpy(f, got, sub, starts); err != nil || !slices.Equal(got, want) {
			t.Errorf("%T of shape %v, %v from %v: %v, %v; want %v", all, shape, sub, starts, got, err, want)
		}
		g, err := Open(world, out, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(WriteNpy(g, all, shape, shape, make([]int, len(shape))), f.Close(), g.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

// NumPy and ranks read each other's arrays of random shapes, orders and types.
func TestRandomArraysAgreeWithNumpy(t *testing.T) {
	const arrays = 120
	dir, r := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	shapes, sizes := make([][]int, arrays), make([]int, arrays)
	var program strings.Builder
	program.WriteString("import os; os.chdir(sys.argv[1])\n")
	types := []string{"i1", "i8", "f4", "f8", "u2"}
	for i := range arrays {
		shapes[i], sizes[i] = randomShape(r)
		order := map[bool]string{true: "np.asfortranarray", false: ""}[r.IntN(2) == 0 && len(shapes[i]) > 0]
		fmt.Fprintf(&program, "np.save('%d', %s(np.arange(%d).astype('%s').reshape(%s)))\n", i, order, sizes[i], types[i%5], tuple(shapes[i]))
	}
	numpy(t, program.String(), dir)
	for i := range arrays {
		in, out := filepath.Join(dir, fmt.Sprintf("%d.npy", i)), filepath.Join(dir, fmt.Sprintf("back%d.npy", i))
		switch types[i%5] {
		case "i1":
			readsAndWrites[int8](t, r, in, out, shapes[i], sizes[i])
		case "i8":
			readsAndWrites[int64](t, r, in, out, shapes[i], sizes[i])
		case "f4":
			readsAndWrites[float32](t, r, in, out, shapes[i], sizes[i])
		case "f8":
			readsAndWrites[float64](t, r, in, out, shapes[i], sizes[i])
		case "u2":
			readsAndWrites[uint16](t, r, in, out, shapes[i], sizes[i])
		}
	}
	got := numpy(t, fmt.Sprintf(`import os; os.chdir(sys.argv[1])
for i in range(%d):
	a, b = np.load("%%d.npy" %% i), np.load("back%%d.npy" %% i)
	if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a, b):
		print(i, a.dtype, a.shape, b.dtype, b.shape)`, arrays), dir)
	if got != "" {
		t.Errorf("NumPy reads other arrays than were written:\n%s", got)
	}
}

// An array that ends after the last offset that a file can have is refused before anything is written.
func TestWriteNpyRefusesArrayBeyondLastOffset(t *testing.T) {
	if math.MaxInt < math.MaxInt64 {
		return // an int counts no such array
	}
	name := filepath.Join(t.TempDir(), "f")
	err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error {
		f, err := Open(world, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		err = WriteNpy(f, []float64{1}, []int{math.MaxInt}, []int{1}, []int{world.Rank()})
		if n, e := f.Size(); !errors.Is(err, cohort.ErrCount) || n != 0 || e != nil {
			t.Errorf("%v, and the file has %d bytes, %v; want %v and 0", err, n, e, cohort.ErrCount)
		}
		return f.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNpyErrorShowsAllBytesOfShortFile(t *testing.T) {
	for _, text := range []string{"", "x"} {
		_, err := parseNpy(strings.NewReader(text))
		if want := fmt.Sprintf("it begins with %q", text); !errors.Is(err, cohort.ErrType) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %v: %s", err, cohort.ErrType, want)
		}
	}
}

// A header of any number of dimensions is read back, and the data after it are aligned.
func TestNpyHeaderIsReadBack(t *testing.T) {
	for n := range npyMost + 1 {
		a := Npy{Type: "<f8", Shape: slices.Repeat([]int{1 << 30}, n)}
		h := a.header()
		got, err := parseNpy(bytes.NewReader(h))
		if err != nil || got.Type != a.Type || !slices.Equal(got.Shape, a.Shape) || got.Off != int64(len(h)) || got.Fortran {
			t.Errorf("%d dimensions: %+v, %v", n, got, err)
		}
		if len(h)%64 != 0 || h[len(h)-1] != '\n' {
			t.Errorf("%d dimensions: the header has %d bytes and ends with %q", n, len(h), h[len(h)-1])
		}
	}
}

// FuzzNpy reads any bytes as a header: it gives an error, or an array that a header can be made of.
func FuzzNpy(f *testing.F) {
	f.Add(Npy{Type: "<f8", Shape: []int{3, 4}}.header())
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"))
	f.Add([]byte("\x93NUMPY\x01\x00\x46\x00{'descr': '|b1', 'fortran_order': True, 'shape': (3L, 99999999999999999999), }\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseNpy(bytes.NewReader(b))
		if err != nil || len(a.Shape) > npyMost {
			return
		}
		again, err := parseNpy(bytes.NewReader(a.header()))
		if err != nil || fmt.Sprint(again.Type, again.Shape) != fmt.Sprint(a.Type, a.Shape) {
			t.Errorf("%+v, and of its header %+v, %v", a, again, err)
		}
	})
}

var _ io.ReaderAt = (*File)(nil)
var _ io.WriterAt = (*File)(nil)
