package main

import "math"

// nodes has, for each of the first seven binary digits of a number between 1 and 2, an approximate inverse of numbers
// that begin so, and minus its logarithm.
var nodes = func() (n [128]struct{ inverse, log float64 }) {
	for i := range n {
		n[i].inverse = 1 / (1 + (float64(i)+0.5)/128)
		n[i].log = -math.Log(n[i].inverse)
	}
	return n
}()

// log returns ln t for 0 < t ≤ 1, with an absolute error of a few units in the last place of ln 2. math.Log treats more
// cases, is not inlined, and divides. With t = 2^k m and an inverse c of about 1/m,
//
//	ln t = k ln 2 - ln c + ln(1+r), r = cm - 1,
//
// where |r| ≤ 1/256, so that six terms of the series of ln(1+r) suffice.
func log(t float64) float64 {
	bits := math.Float64bits(t)
	node := &nodes[bits>>45&127]
	k := float64(int64(bits>>52) - 1023)
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52)
	r := m*node.inverse - 1
	square := r * r
	return k*math.Ln2 + node.log + (r - square*(1./2-r*(1./3)+square*(1./4-r*(1./5)+square*(1./6))))
}
