// Package chart draws curves with logarithmic axes as SVG.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"os"
	"unicode/utf8"
)

// Lengths in pixels.
const (
	width, height       = 480, 320 // of a panel
	left, right, bottom = 76, 26, 44
	heading             = 34 // above all panels
	line                = 16 // a row of a legend
	sample              = 24 // of a curve in a legend
)

// Point is a point of a curve. Both coordinates are above 0.
type Point struct{ X, Y float64 }

// Curve is a line through points.
type Curve struct {
	Name   string  // in the legend, unless it is empty
	Color  string  // of SVG
	Width  float64 // of the line, 0 for dots alone
	Dot    float64 // the radius of the dots on it
	Dashed bool
	Points []Point
}

// Axis is a logarithmic axis, with labels at powers of Base.
type Axis struct {
	Name  string
	Base  float64
	Label func(float64) string
}

// Bytes is the axis of message sizes.
var Bytes = Axis{Name: "message size (bytes)", Base: 2, Label: binaryUnit}

// Panel is a plot. It has at least one curve, and every curve a point.
type Panel struct {
	Title  string
	X, Y   Axis
	Curves []Curve
}

// Write draws panels row by row, on white, also where the page around it is dark.
func Write(file, title string, columns int, panels ...Panel) error {
	return os.WriteFile(file, page(title, columns, panels), 0o644)
}

func page(title string, columns int, panels []Panel) []byte {
	columns = min(columns, len(panels))
	w, h := columns*width, heading+(len(panels)+columns-1)/columns*height
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "+
		"font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n", w, h, w, h)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", w, h)
	write(&b, float64(w)/2, 22, `text-anchor="middle" font-size="17"`, title)
	legend := 0
	for _, p := range panels {
		legend = max(legend, p.legend(new(bytes.Buffer)))
	}
	for i, p := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%d,%d)\">\n", i%columns*width, heading+i/columns*height)
		p.legend(&b)
		p.draw(&b, float64(28+legend))
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// write writes a text. Its attributes say where it is from the point.
func write(b *bytes.Buffer, x, y float64, attributes, text string) {
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, attributes, html.EscapeString(text))
}

// legend draws the names of the curves under the title, row by row, and returns the height.
func (p *Panel) legend(b *bytes.Buffer) (height int) {
	x := width
	for _, c := range p.Curves {
		if c.Name == "" {
			continue
		}
		needs := sample + 6 + 7*utf8.RuneCountInString(c.Name) + 16 // a letter is about 7 wide
		if x+needs > width {
			x, height = left, height+line
		}
		y := float64(16 + height)
		c.stroke(b, []Point{{float64(x), y}, {float64(x + sample), y}})
		write(b, float64(x+sample+6), y+4, "", c.Name)
		x += needs
	}
	return height
}

// stroke draws a curve through points of the page.
func (c *Curve) stroke(b *bytes.Buffer, points []Point) {
	if c.Width > 0 {
		dashes := ""
		if c.Dashed {
			dashes = ` stroke-dasharray="6,4"`
		}
		fmt.Fprintf(b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\"%s points=\"", c.Color, c.Width, dashes)
		for _, p := range points {
			fmt.Fprintf(b, " %.1f,%.1f", p.X, p.Y)
		}
		b.WriteString("\"/>\n")
	}
	if c.Dot > 0 {
		for _, p := range points {
			fmt.Fprintf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", p.X, p.Y, c.Dot, c.Color)
		}
	}
}

// draw draws the title, the axes and the curves, which begin at top.
func (p *Panel) draw(b *bytes.Buffer, top float64) {
	write(b, (left+width-right)/2, 14, `text-anchor="middle"`, p.Title)
	write(b, (left+width-right)/2, height-8, `text-anchor="middle"`, p.X.Name)
	lo, hi := p.Curves[0].Points[0], p.Curves[0].Points[0]
	for _, c := range p.Curves {
		for _, at := range c.Points {
			lo = Point{min(lo.X, at.X), min(lo.Y, at.Y)}
			hi = Point{max(hi.X, at.X), max(hi.Y, at.Y)}
		}
	}
	x, y := p.X.scale(lo.X, hi.X, left, width-right), p.Y.scale(lo.Y, hi.Y, height-bottom, top)
	for _, v := range x.marks {
		fmt.Fprintf(b, "<path stroke=\"#ddd\" d=\"M%.1f,%.1fV%d\"/>\n", x.at(v), top, height-bottom)
		write(b, x.at(v), height-bottom+17, `text-anchor="middle"`, p.X.Label(v))
	}
	for _, v := range y.marks {
		fmt.Fprintf(b, "<path stroke=\"#ddd\" d=\"M%d,%.1fH%d\"/>\n", left, y.at(v), width-right)
		write(b, left-6, y.at(v)+4, `text-anchor="end"`, p.Y.Label(v))
	}
	for _, c := range p.Curves {
		points := make([]Point, len(c.Points))
		for i, at := range c.Points {
			points[i] = Point{x.at(at.X), y.at(at.Y)}
		}
		c.stroke(b, points)
	}
}

// scale is where the values from first to last are on the page.
type scale struct {
	first, last, from, to float64
	marks                 []float64
}

// scale begins and ends with powers of the base that include lo and hi, and has at most nine marks.
func (a Axis) scale(lo, hi, from, to float64) scale {
	first := math.Floor(math.Log(lo)/math.Log(a.Base) + 1e-9)
	last := max(math.Ceil(math.Log(hi)/math.Log(a.Base)-1e-9), first+1)
	step := math.Ceil((last - first) / 8)
	last = first + math.Ceil((last-first)/step)*step
	s := scale{first: math.Pow(a.Base, first), last: math.Pow(a.Base, last), from: from, to: to}
	for k := first; k <= last; k += step {
		s.marks = append(s.marks, math.Pow(a.Base, k))
	}
	return s
}

func (s *scale) at(v float64) float64 {
	return s.from + math.Log(v/s.first)/math.Log(s.last/s.first)*(s.to-s.from)
}

// SI writes a number with at most three digits and the prefix that suits it.
func SI(v float64, unit string) string {
	for _, p := range []struct {
		factor float64
		prefix string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {1e-3, "m"}, {1e-6, "µ"}, {1e-9, "n"}} {
		if v >= p.factor*0.999 || p.prefix == "n" {
			return fmt.Sprintf("%.3g %s%s", v/p.factor, p.prefix, unit)
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
