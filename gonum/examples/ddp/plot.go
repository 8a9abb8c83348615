package main

import (
	"bytes"
	"fmt"
	"math"
)

// around is how many steps the smooth line is the mean of, fewer at both ends.
const around = 21

// drawn reports whether a loss is in the picture: those of a training that has gone wrong may be no numbers, or
// so large that there is no scale for them.
func drawn(l float64) bool { return math.Abs(l) < 1e300 }

// draw returns an SVG picture of the losses: each step's, and the mean of those around it.
func draw(losses []float64) []byte {
	const width, height, left, right, top, bottom = 720, 400, 72, 24, 52, 52
	most := 0.0
	for _, l := range losses {
		if drawn(l) {
			most = math.Max(most, l)
		}
	}
	if most == 0 {
		most = 1 // of such losses there is nothing to see, but axes
	}
	tick := round(most / 6)
	most = math.Ceil(most/tick) * tick
	last := float64(len(losses) - 1)
	x := func(i float64) float64 { return left + (width-left-right)*i/math.Max(1, last) }
	y := func(l float64) float64 { return height - bottom - (height-top-bottom)*l/most }

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for k := range int(most/tick+0.5) + 1 {
		l := float64(k) * tick
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text class="loss" x="%d" y="%.1f" dy="0.35em" text-anchor="end">%.4g</text>`+"\n",
			left, y(l), width-right, left-8, y(l), l)
	}
	step := func(i float64) {
		fmt.Fprintf(&b, `<path d="M%.1f %dv5" stroke="#888"/><text class="step" x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n",
			x(i), height-bottom, x(i), height-bottom+20, i+1)
	}
	step(0)
	every := math.Max(1, round(last/5))
	for i := every - 1; i <= last; i += every {
		if i > 0 {
			step(i)
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">step</text>`+"\n", (left+width-right)/2, height-10)
	fmt.Fprintf(&b, `<text transform="translate(20 %d) rotate(-90)" text-anchor="middle">loss (cross entropy)</text>`+"\n", (top+height-bottom)/2)

	line := func(at int, name, style string, loss func(i int) float64) {
		fmt.Fprintf(&b, `<path d="M%d 26h24" %s/><text x="%d" y="26" dy="0.35em">%s</text>`+"\n", at, style, at+30, name)
		fmt.Fprintf(&b, `<polyline fill="none" %s points="`, style)
		for i := range losses {
			if l := loss(i); drawn(l) {
				fmt.Fprintf(&b, "%.1f,%.1f ", x(float64(i)), y(l))
			}
		}
		b.WriteString("\"/>\n")
	}
	line(left, "each step", `stroke="#9ecae1"`, func(i int) float64 { return losses[i] })
	line(left+130, fmt.Sprintf("mean of the %d steps around it", around), `stroke="#08519c" stroke-width="2"`, func(i int) float64 {
		sum, n := 0.0, 0
		for k := max(0, i-around/2); k <= min(len(losses)-1, i+around/2); k++ {
			if drawn(losses[k]) {
				sum += losses[k]
				n++
			}
		}
		return sum / float64(n)
	})
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// round returns the least of 1, 2 and 5 times a power of ten that is not below x, which is above 0 or 0 itself.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, times := range []float64{1, 2, 5} {
		if times*power >= x {
			return times * power
		}
	}
	return 10 * power
}
