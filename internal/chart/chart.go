// Package chart draws curves over the message size as SVG.
package chart

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const width, height = 10 * vg.Inch, 4.4 * vg.Inch

var gridColor = color.Gray{Y: 0xdd}

// Point is a message size in bytes, and what was measured.
type Point = plotter.XY

// Curve is a line through points. Curves of the same name are the same in all panels of a chart. The
// legend has the names that are not empty.
type Curve struct {
	Name   string
	Color  color.Color
	Dashed bool
	Points []Point
}

// Panel is a plot with logarithmic axes. It has at least one curve, and every curve a point.
type Panel struct {
	Title  string
	Base   float64              // the vertical axis has labels at powers of Base
	Label  func(float64) string // and these are the labels
	Curves []Curve
}

// Write draws panels side by side. The background is white, also where the page around it is dark.
// The file appears as a whole or not at all.
func Write(file, title string, panels ...Panel) error {
	plots := [][]*plot.Plot{nil}
	for _, p := range panels {
		drawn, err := p.plot()
		if err != nil {
			return err
		}
		plots[0] = append(plots[0], drawn)
	}
	svg := vgsvg.New(width, height)
	page := draw.New(svg)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	heading := lettering(13)
	heading.XAlign, heading.YAlign = draw.XCenter, draw.YTop
	page.FillText(heading, vg.Point{X: page.Center().X, Y: page.Max.Y - vg.Points(10)}, title)
	tiles := draw.Tiles{
		Rows: 1, Cols: len(panels), PadX: vg.Points(24),
		PadTop: vg.Points(32) + legend(page, panels), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(20),
	}
	for i, c := range plot.Align(plots, tiles, page)[0] {
		plots[0][i].Draw(c)
	}

	tmp, err := os.CreateTemp(filepath.Dir(file), ".plot-*")
	if err != nil {
		return err
	}
	_, err = svg.WriteTo(tmp)
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

func lettering(size float64) text.Style {
	f := font.From(plot.DefaultFont, vg.Points(size))
	f.Variant = "Sans"
	return text.Style{Color: color.Black, Font: f, Handler: plot.DefaultTextHandler}
}

// legend draws the names of the curves under the title, row by row, and returns the height.
func legend(page draw.Canvas, panels []Panel) vg.Length {
	const left, sample, row = 18, 22, 14
	style := lettering(9)
	style.YAlign = draw.YCenter
	x, y, seen := vg.Length(left), page.Max.Y-vg.Points(36), make(map[string]bool)
	for _, p := range panels {
		for _, c := range p.Curves {
			if c.Name == "" || seen[c.Name] {
				continue
			}
			seen[c.Name] = true
			needs := sample + 5 + style.Width(c.Name) + 16
			if x+needs > page.Max.X {
				x, y = left, y-row
			}
			page.StrokeLine2(c.style(), x, y, x+sample, y)
			page.FillText(style, vg.Point{X: x + sample + 5, Y: y}, c.Name)
			x += needs
		}
	}
	if len(seen) == 0 {
		return 0
	}
	return page.Max.Y - vg.Points(36) - y + row
}

func (c *Curve) style() draw.LineStyle {
	s := draw.LineStyle{Color: c.Color, Width: vg.Points(1.5)}
	if c.Dashed {
		s.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	return s
}

func (p *Panel) plot() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text = p.Title
	drawn.Title.Padding = vg.Points(6)
	drawn.X.Label.Text = "message size (bytes)"
	for _, s := range []*font.Font{
		&drawn.Title.TextStyle.Font, &drawn.X.Label.TextStyle.Font, &drawn.X.Tick.Label.Font, &drawn.Y.Tick.Label.Font,
	} {
		s.Variant, s.Size = "Sans", vg.Points(10)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	grid.Vertical.Width, grid.Horizontal.Width = vg.Points(0.75), vg.Points(0.75)
	drawn.Add(grid)
	var all plotter.XYs
	for _, c := range p.Curves {
		line, dots, err := plotter.NewLinePoints(plotter.XYs(c.Points))
		if err != nil {
			return nil, err
		}
		line.LineStyle = c.style()
		dots.Color, dots.Shape, dots.Radius = c.Color, draw.CircleGlyph{}, vg.Points(2.5)
		drawn.Add(line, dots)
		all = append(all, c.Points...)
	}
	xmin, xmax, ymin, ymax := plotter.XYRange(all)
	axis(&drawn.X, xmin, xmax, 2, binaryUnit)
	axis(&drawn.Y, ymin, ymax, p.Base, func(v float64) string { return p.Label(v) + " " })
	return drawn, nil
}

// axis makes an axis logarithmic, from a power of base to another that include lo and hi, with at most
// nine labels.
func axis(a *plot.Axis, lo, hi, base float64, label func(float64) string) {
	first := math.Floor(math.Log(lo)/math.Log(base) + 1e-9)
	last := max(math.Ceil(math.Log(hi)/math.Log(base)-1e-9), first+1)
	step := math.Ceil((last - first) / 8)
	last = first + math.Ceil((last-first)/step)*step
	var ticks plot.ConstantTicks
	for k := first; k <= last; k += step {
		ticks = append(ticks, plot.Tick{Value: math.Pow(base, k), Label: label(math.Pow(base, k))})
	}
	a.Min, a.Max, a.Scale, a.Tick.Marker = math.Pow(base, first), math.Pow(base, last), plot.LogScale{}, ticks
	a.AutoRescale, a.Padding, a.Tick.Length = false, 0, vg.Points(3)
}

// SI writes a power of ten with the prefix that suits it.
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
