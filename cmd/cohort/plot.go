package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
)

// The picture: two panels beside each other, time and throughput by message
// size, both axes logarithmic. Sizes in pixels.
const (
	plotWidth, plotHeight     = 960, 420
	panelWidth, panelHeight   = 370, 290
	panelTop                  = 70
	timeLeft, throughputLeft  = 80, 560
	inkColor, gridColor       = "#222", "#ddd"
	timeColor, throughputTint = "#1f77b4", "#d62728"
)

type point struct{ x, y float64 }

// axis is a logarithmic scale from lo to hi on pixels from a to b.
type axis struct{ lo, hi, a, b float64 }

func (x axis) at(v float64) float64 {
	return x.a + (x.b-x.a)*(math.Log(v)-math.Log(x.lo))/(math.Log(x.hi)-math.Log(x.lo))
}

// writePlot draws results of one operation as SVG. The file appears whole or not
// at all.
func writePlot(file string, all []result) error {
	var times, rates []point
	for _, r := range all {
		if r.Bytes > 0 {
			times = append(times, point{float64(r.Bytes), float64(r.Usec)})
			rates = append(rates, point{float64(r.Bytes), float64(r.Bytes) / float64(r.Usec)})
		}
	}
	if len(times) == 0 {
		return fmt.Errorf("%s has no message sizes above 0 to draw over", all[0].Op)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">
<rect width="100%%" height="100%%" fill="white"/>
<text x="%d" y="30" font-size="17">%s</text>
`, plotWidth, plotHeight, plotWidth, plotHeight, inkColor, timeLeft,
		html.EscapeString(fmt.Sprintf("%s: %s, %d ranks", all[0].Op, all[0].Lib, all[0].Ranks)))
	panel(&b, timeLeft, "time of one call", timeColor, times, func(us float64) string { return unit(us*1e-6, "s") })
	panel(&b, throughputLeft, "throughput", throughputTint, rates, func(mb float64) string { return unit(mb*1e6, "B/s") })
	b.WriteString("</svg>\n")
	tmp, err := os.CreateTemp(filepath.Dir(file), ".plot-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b.Bytes())
	if e := tmp.Chmod(0o644); err == nil {
		err = e
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// panel draws one curve with its axes.
func panel(b *bytes.Buffer, left float64, title, color string, points []point, label func(float64) string) {
	bottom := float64(panelTop + panelHeight)
	right := left + panelWidth
	x := axis{math.Inf(1), 0, left, right}
	y := axis{math.Inf(1), 0, bottom, panelTop}
	for _, p := range points {
		x.lo, x.hi = min(x.lo, p.x), max(x.hi, p.x)
		y.lo, y.hi = min(y.lo, p.y), max(y.hi, p.y)
	}
	x.lo, x.hi = powerBelow(x.lo, 2), powerAbove(x.hi, 2)
	y.lo, y.hi = powerBelow(y.lo, 10), powerAbove(y.hi, 10)

	fmt.Fprintf(b, `<text x="%g" y="%d" font-size="13">%s</text>`+"\n", left, panelTop-12, html.EscapeString(title))
	// At most eight lines with numbers on the axis of bytes.
	step := math.Pow(2, math.Ceil(math.Log2(x.hi/x.lo)/8))
	for v := x.lo; v <= x.hi*1.001; v *= step {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke="%s"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n",
			x.at(v), x.at(v), panelTop, bottom, gridColor, x.at(v), bottom+17, binaryUnit(v))
	}
	for v := y.lo; v <= y.hi*1.001; v *= 10 {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, right, y.at(v), y.at(v), gridColor, left-7, y.at(v)+4, html.EscapeString(label(v)))
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%d" height="%d" fill="none" stroke="%s"/>`+"\n", left, panelTop, panelWidth, panelHeight, inkColor)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">message size (bytes)</text>`+"\n", (left+right)/2, bottom+40)
	b.WriteString(`<polyline fill="none" stroke-width="2" stroke="` + color + `" points="`)
	for _, p := range points {
		fmt.Fprintf(b, "%.1f,%.1f ", x.at(p.x), y.at(p.y))
	}
	b.WriteString("\"/>\n")
	for _, p := range points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x.at(p.x), y.at(p.y), color)
	}
}

// powerBelow and powerAbove return the powers of base around v, which are never
// the same one.
func powerBelow(v, base float64) float64 {
	return math.Pow(base, math.Floor(math.Log(v)/math.Log(base)+1e-9))
}

func powerAbove(v, base float64) float64 {
	return math.Pow(base, math.Floor(math.Log(v)/math.Log(base)+1e-9)+1)
}

// unit writes a power of ten with the prefix that suits it.
func unit(v float64, name string) string {
	for _, p := range []struct {
		factor float64
		prefix string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {1e-3, "m"}, {1e-6, "µ"}, {1e-9, "n"}} {
		if v >= p.factor*0.999 || p.prefix == "n" {
			return fmt.Sprintf("%.3g %s%s", v/p.factor, p.prefix, name)
		}
	}
	return ""
}

// binaryUnit writes a power of two with the prefix that suits it.
func binaryUnit(v float64) string {
	for _, p := range []struct {
		factor float64
		prefix string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if v >= p.factor {
			return fmt.Sprintf("%g %s", v/p.factor, p.prefix)
		}
	}
	return fmt.Sprintf("%g", v)
}
