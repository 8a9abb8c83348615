package main

import "math"

// nodes has, for each of the first eight binary digits of a number between 1 and 2, an approximate inverse of numbers
// that begin so, and minus its logarithm.
var nodes = func() (n [256]struct{ inverse, log float64 }) {
	for i := range n {
		n[i].inverse = 1 / (1 + (float64(i)+0.5)/256)
		n[i].log = -math.Log(n[i].inverse)
	}
	return n
}()

// log returns ln t for 0 < t ≤ 1, with an absolute error of a few units in the last place of ln 2. math.Log treats more
// cases, is a call, and divides. With t = 2^k m and an inverse c of about 1/m,
//
//	ln t = k ln 2 - ln c + ln(1+r), r = cm - 1,
//
// where |r| ≤ 1/512, so that five terms of the series of ln(1+r) suffice.
func log(t float64) float64 {
	bits := math.Float64bits(t)
	node := nodes[bits>>44&255]
	r := math.Float64frombits(bits&(1<<52-1)|1023<<52)*node.inverse - 1
	square := r * r
	return float64(int64(bits>>52)-1023)*math.Ln2 + node.log + (r - square*(1./2-r*(1./3)+square*(1./4-r*(1./5))))
}
