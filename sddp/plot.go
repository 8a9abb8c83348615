package sddp

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// The looks of all drawings.
const (
	inkColor   = "#1f2933"
	mutedColor = "#667380"
	gridColor  = "#e3e7eb"
	lowerColor = "#1b6ca8"
	upperColor = "#d1632a"
	bandColor  = "#8fb8d8"
	limitColor = "#9a3b3b"
	fontFamily = "Helvetica, Arial, sans-serif"
)

// drawing is an SVG being written.
type drawing struct{ bytes.Buffer }

// newDrawing starts a drawing of a size in pixels with a title, which is read to those who cannot
// see it.
func newDrawing(width, height int, title, description string) *drawing {
	d := &drawing{}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="%s" font-size="13" fill="%s">`+"\n",
		width, height, width, height, fontFamily, inkColor)
	fmt.Fprintf(d, "<title>%s</title>\n<desc>%s</desc>\n", escaped(title), escaped(description))
	fmt.Fprintf(d, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	return d
}

// done ends the drawing.
func (d *drawing) done() []byte {
	d.WriteString("</svg>\n")
	return d.Bytes()
}

// escaped returns text for XML.
func escaped(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic(err) // a bytes.Buffer takes everything
	}
	return b.String()
}

// label writes text at a point; anchor is start, middle or end.
func (d *drawing) label(x, y float64, anchor, style, text string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, escaped(text))
}

// stroke draws a straight line.
func (d *drawing) stroke(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
}

// path draws a line through points given as x, y, x, y, …; closed ones are filled.
func (d *drawing) path(points []float64, closed bool, style string) {
	d.WriteString(`<path d="`)
	for i := 0; i+1 < len(points); i += 2 {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(d, "%s%.1f %.1f", command, points[i], points[i+1])
	}
	if closed {
		d.WriteString("Z")
	}
	fmt.Fprintf(d, `" %s/>`+"\n", style)
}

// axes maps figures to a rectangle of the drawing.
type axes struct {
	left, top, width, height float64
	x0, x1, y0, y1           float64 // figures at the edges
}

func (a axes) x(v float64) float64 { return a.left + (v-a.x0)/(a.x1-a.x0)*a.width }
func (a axes) y(v float64) float64 { return a.top + a.height - (v-a.y0)/(a.y1-a.y0)*a.height }

// bottom and right are the other two edges.
func (a axes) bottom() float64 { return a.top + a.height }
func (a axes) right() float64  { return a.left + a.width }

// ticks returns about n round numbers from lo to hi (Heckbert, "Nice numbers for graph labels",
// 1990), and the decimals they need.
func ticks(lo, hi float64, n int) (at []float64, decimals int) {
	if !(hi > lo) {
		return []float64{lo}, 0
	}
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(f*step) <= float64(n) {
			step *= f
			break
		}
	}
	decimals = max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for k := math.Ceil(lo/step-1e-9) + 0; k*step <= hi+1e-9*step; k++ {
		at = append(at, k*step)
	}
	return at, decimals
}

// grouped returns a number with thin spaces between its thousands.
func grouped(v float64, decimals int) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', decimals, 64)
	whole := len(s)
	if decimals > 0 {
		whole -= decimals + 1
	}
	for i := whole - 3; i > 0; i -= 3 {
		s = s[:i] + "\u2009" + s[i:]
	}
	if v < 0 {
		s = "−" + s
	}
	return s
}

// frameY draws the horizontal grid with its figures.
func (d *drawing) frameY(a axes, n int) {
	at, decimals := ticks(a.y0, a.y1, n)
	for _, v := range at {
		y := a.y(v)
		d.stroke(a.left, y, a.right(), y, `stroke="`+gridColor+`"`)
		d.label(a.left-8, y+4, "end", `font-size="12"`, grouped(v, decimals))
	}
	d.stroke(a.left, a.bottom(), a.right(), a.bottom(), `stroke="`+mutedColor+`"`)
}

// legendEntry is a line of a legend: a mark drawn in a box of 26 by 12 pixels, and its meaning.
type legendEntry struct {
	mark func(d *drawing, x, y float64)
	text string
}

// legend draws entries side by side from a point.
func (d *drawing) legend(x, y float64, entries []legendEntry) {
	for _, e := range entries {
		e.mark(d, x, y)
		d.label(x+33, y+4, "start", `font-size="12"`, e.text)
		x += 33 + 6.6*float64(len([]rune(e.text))) + 22
	}
}
