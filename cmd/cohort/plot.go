package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const plotWidth, plotHeight = 10 * vg.Inch, 4.4 * vg.Inch

var (
	timeColor       = color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}
	throughputColor = color.RGBA{R: 0xd6, G: 0x27, B: 0x28, A: 0xff}
	gridColor       = color.Gray{Y: 0xdd}
)

// writePlot draws results of one operation as SVG: time and throughput by message size, in two panels
// with logarithmic axes. The file appears as a whole or not at all.
func writePlot(file string, all []result) error {
	var times, rates plotter.XYs
	for _, r := range all {
		if r.Bytes > 0 {
			times = append(times, plotter.XY{X: float64(r.Bytes), Y: float64(r.Usec) * 1e-6})
			rates = append(rates, plotter.XY{X: float64(r.Bytes), Y: float64(r.Bytes) / (float64(r.Usec) * 1e-6)})
		}
	}
	if len(times) == 0 {
		return fmt.Errorf("%s has no message sizes above 0 to draw", all[0].Op)
	}
	left, err := panel("time of one call", "s", timeColor, times)
	if err != nil {
		return err
	}
	right, err := panel("throughput", "B/s", throughputColor, rates)
	if err != nil {
		return err
	}
	svg := vgsvg.New(plotWidth, plotHeight)
	page := draw.New(svg)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	title := left.Title.TextStyle
	title.Font.Size = vg.Points(13)
	title.XAlign, title.YAlign = draw.XCenter, draw.YTop
	page.FillText(title, vg.Point{X: page.Center().X, Y: page.Max.Y - vg.Points(10)},
		fmt.Sprintf("%s: %s, %d ranks", all[0].Op, all[0].Lib, all[0].Ranks))
	tiles := draw.Tiles{
		Rows: 1, Cols: 2, PadX: vg.Points(24),
		PadTop: vg.Points(32), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(20),
	}
	plots := [][]*plot.Plot{{left, right}}
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

// panel returns the plot of one curve over the message size.
func panel(title, unit string, c color.Color, points plotter.XYs) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.X.Label.Text = "message size (bytes)"
	for _, s := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font,
	} {
		s.Variant, s.Size = "Sans", vg.Points(10)
	}
	xmin, xmax, ymin, ymax := plotter.XYRange(points)
	axis(&p.X, xmin, xmax, 2, binaryUnit)
	axis(&p.Y, ymin, ymax, 10, func(v float64) string { return siUnit(v, unit) + " " })

	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	grid.Vertical.Width, grid.Horizontal.Width = vg.Points(0.75), vg.Points(0.75)
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	line.Color, line.Width = c, vg.Points(1.5)
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(2.5)
	p.Add(grid, line, dots)
	return p, nil
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

// siUnit writes a power of ten with the prefix that suits it.
func siUnit(v float64, name string) string {
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
