package kernel

import "github.com/cohort-hpc/cohort/internal/view"

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

type real interface {
	integer | ~float32 | ~float64
}

type number interface {
	real | ~complex64 | ~complex128
}

// three returns dst, a and b as elements, all of the same length.
func three[T any](dst, a, b []byte) (d, x, y []T) {
	d = view.Of[T](dst)
	return d, view.Of[T](a)[:len(d)], view.Of[T](b)[:len(d)]
}

// sum and prod go in steps of eight through array pointers, for which the
// compiler needs no bounds checks; what is left of the vector goes one by one.

func sum[T number](dst, a, b []byte) {
	d, x, y := three[T](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		p, q, r := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		p[0] = q[0] + r[0]
		p[1] = q[1] + r[1]
		p[2] = q[2] + r[2]
		p[3] = q[3] + r[3]
		p[4] = q[4] + r[4]
		p[5] = q[5] + r[5]
		p[6] = q[6] + r[6]
		p[7] = q[7] + r[7]
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func prod[T number](dst, a, b []byte) {
	d, x, y := three[T](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		p, q, r := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		p[0] = q[0] * r[0]
		p[1] = q[1] * r[1]
		p[2] = q[2] * r[2]
		p[3] = q[3] * r[3]
		p[4] = q[4] * r[4]
		p[5] = q[5] * r[5]
		p[6] = q[6] * r[6]
		p[7] = q[7] * r[7]
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

func minimum[T real](dst, a, b []byte) {
	d, x, y := three[T](dst, a, b)
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

func maximum[T real](dst, a, b []byte) {
	d, x, y := three[T](dst, a, b)
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}

func land[T integer](dst, a, b []byte) {
	d, x, y := three[T](dst, a, b)
	for i := range d {
		d[i] = truth[T](x[i] != 0 && y[i] != 0)
	}
}

func lor[T integer](dst, a, b []byte) {
	d, x, y := three[T](dst, a, b)
	for i := range d {
		d[i] = truth[T](x[i]|y[i] != 0)
	}
}

func lxor[T integer](dst, a, b []byte) {
	d, x, y := three[T](dst, a, b)
	for i := range d {
		d[i] = truth[T]((x[i] != 0) != (y[i] != 0))
	}
}

func truth[T integer](b bool) T {
	if b {
		return 1
	}
	return 0
}

// The bitwise operations do not depend on the kind and go by words where they
// can.

func band(dst, a, b []byte) {
	n := len(dst) &^ 7
	d, x, y := three[uint64](dst[:n], a, b)
	for i := range d {
		d[i] = x[i] & y[i]
	}
	for i := n; i < len(dst); i++ {
		dst[i] = a[i] & b[i]
	}
}

func bor(dst, a, b []byte) {
	n := len(dst) &^ 7
	d, x, y := three[uint64](dst[:n], a, b)
	for i := range d {
		d[i] = x[i] | y[i]
	}
	for i := n; i < len(dst); i++ {
		dst[i] = a[i] | b[i]
	}
}

func bxor(dst, a, b []byte) {
	n := len(dst) &^ 7
	d, x, y := three[uint64](dst[:n], a, b)
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
	for i := n; i < len(dst); i++ {
		dst[i] = a[i] ^ b[i]
	}
}
