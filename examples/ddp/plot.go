package main

import (
	"bytes"
	"fmt"
	"math"
)

// draw returns an SVG picture of the losses: each step's, and the mean of those around it.
func draw(losses []float64) []byte {
	const width, height, left, right, top, bottom = 720, 400, 64, 20, 40, 52
	most := 0.0
	for _, l := range losses {
		most = math.Max(most, l)
	}
	tick := math.Pow(10, math.Floor(math.Log10(most)))
	if most < 4*tick {
		tick /= 4
	}
	most = math.Ceil(most/tick) * tick
	x := func(i float64) float64 { return left + (width-left-right)*i/math.Max(1, float64(len(losses)-1)) }
	y := func(l float64) float64 { return height - bottom - (height-top-bottom)*l/most }
	line := func(b *bytes.Buffer, style string, at func(i int) float64) {
		fmt.Fprintf(b, `<polyline fill="none" %s points="`, style)
		for i := range losses {
			fmt.Fprintf(b, "%.1f,%.1f ", x(float64(i)), y(at(i)))
		}
		b.WriteString("\"/>\n")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="24" font-size="15">Loss of each step (cross entropy), and its mean over 21 steps</text>`+"\n", left)
	for l := 0.0; l <= most*1.001; l += tick {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n", left, y(l), width-right, left-8, y(l)+4, l)
	}
	for k := range 5 {
		i := float64(len(losses)-1) * float64(k) / 4
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(i), height-bottom+20, i+1)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">step</text>`+"\n", (left+width-right)/2, height-10)
	line(&b, `stroke="#9ecae1"`, func(i int) float64 { return losses[i] })
	line(&b, `stroke="#08519c" stroke-width="2"`, func(i int) float64 {
		sum, n := 0.0, 0
		for k := max(0, i-10); k <= min(len(losses)-1, i+10); k++ {
			sum += losses[k]
			n++
		}
		return sum / float64(n)
	})
	b.WriteString("</svg>\n")
	return b.Bytes()
}
