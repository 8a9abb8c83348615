package main

import "math"

// width is how many sequences are transformed together. Memory is read and written in pieces of this many numbers.
const width = 16

// lane is the numbers at one place of all sequences.
type lane = [width]complex128

// fourier transforms sequences of one length, a power of two: X[k] = Σ x[j] exp(2πi jk/n), without a factor.
type fourier struct {
	roots    []complex128 // exp(2πi k/n)
	backward []int        // lane i of a result holds frequency backward[i]
	forward  []int        // the same for exp(-2πi jk/n)
	lanes    []lane       // the sequences
}

func newFourier(n int) *fourier {
	f := &fourier{roots: make([]complex128, n), forward: make([]int, n), lanes: make([]lane, n)}
	for k := range f.roots {
		sin, cos := math.Sincos(2 * math.Pi * float64(k) / float64(n))
		f.roots[k] = complex(cos, sin)
	}
	f.backward = order(n)
	for i, k := range f.backward {
		f.forward[i] = (n - k) % n
	}
	return f
}

// order returns which frequency is where after transform: the residues modulo the radix, each in its own order.
func order(n int) []int {
	radix := min(n, 4)
	if n == 1 {
		return []int{0}
	}
	part := order(n / radix)
	all := make([]int, 0, n)
	for residue := range radix {
		for _, k := range part {
			all = append(all, residue+radix*k)
		}
	}
	return all
}

// transform transforms the lanes in place, by decimation in frequency with radix 4, and 2 at the end if it must
// (Cooley and Tukey, 1965). Results are in the order of backward.
func (f *fourier) transform() {
	x, n := f.lanes, len(f.lanes)
	size := n // of the parts that are transformed separately
	for ; size >= 4; size /= 4 {
		q, step := size/4, n/size
		for i := 0; i < n; i += size {
			first4(&x[i], &x[i+q], &x[i+2*q], &x[i+3*q])
		}
		for p := 1; p < q; p++ {
			w1, w2, w3 := f.roots[p*step], f.roots[2*p*step], f.roots[3*p*step]
			for i := p; i < n; i += size {
				a, b, c, d := &x[i], &x[i+q], &x[i+2*q], &x[i+3*q]
				for j := range width {
					s, t := a[j]+c[j], a[j]-c[j]
					u, v := b[j]+d[j], b[j]-d[j]
					a[j] = s + u
					b[j] = complex(real(t)-imag(v), imag(t)+real(v)) * w1
					c[j] = (s - u) * w2
					d[j] = complex(real(t)+imag(v), imag(t)-real(v)) * w3
				}
			}
		}
	}
	if size == 2 {
		for i := 0; i < n; i += 2 {
			a, b := &x[i], &x[i+1]
			for j := range width {
				a[j], b[j] = a[j]+b[j], a[j]-b[j]
			}
		}
	}
}

// first4 is the butterfly of transform for p = 0, where all factors are 1.
func first4(a, b, c, d *lane) {
	_, _, _, _ = *a, *b, *c, *d // checks for nil here, not in the loop
	for j := range width {
		s, t := a[j]+c[j], a[j]-c[j]
		u, v := b[j]+d[j], b[j]-d[j]
		a[j] = s + u
		b[j] = complex(real(t)-imag(v), imag(t)+real(v))
		c[j] = s - u
		d[j] = complex(real(t)+imag(v), imag(t)-real(v))
	}
}
