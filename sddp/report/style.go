package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colors of all charts.
var (
	inkColor     = color.NRGBA{0x1f, 0x29, 0x33, 0xff}
	gridColor    = color.NRGBA{0xe3, 0xe7, 0xeb, 0xff}
	lowerColor   = color.NRGBA{0x1b, 0x6c, 0xa8, 0xff}
	upperColor   = color.NRGBA{0xd1, 0x63, 0x2a, 0xff}
	faintColor   = color.NRGBA{0xd1, 0x63, 0x2a, 0x8c} // of error bars
	paleColor    = color.NRGBA{0xd1, 0x63, 0x2a, 0x29} // of an interval
	bandColor    = color.NRGBA{0x8f, 0xb8, 0xd8, 0x80}
	limitColor   = color.NRGBA{0x9a, 0x3b, 0x3b, 0xff}
	hydroColor   = color.NRGBA{0x4f, 0x93, 0xc4, 0xff}
	thermalColor = color.NRGBA{0xe0, 0x9b, 0x52, 0xff}
	deficitColor = color.NRGBA{0xb0, 0x3a, 0x3a, 0xff}
)

// lettering returns a text style.
func lettering(size vg.Length, bold bool) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = 3 // font.WeightBold of golang.org/x/image
	}
	return text.Style{Color: inkColor, Font: f, Handler: plot.DefaultTextHandler}
}

// newPlot returns an empty plot from 0 to top with horizontal grid lines.
func newPlot(title, x, y string, top float64) *plot.Plot {
	p := plot.New()
	small := lettering(9, false)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = inkColor, inkColor
		a.Padding, a.Tick.Length = 0, 3
		a.Label.TextStyle.Color, a.Label.TextStyle.Font = small.Color, small.Font
		a.Tick.Label.Color, a.Tick.Label.Font = small.Color, small.Font
	}
	heading := lettering(11, true)
	p.Title.Text, p.Title.TextStyle.Font, p.Title.TextStyle.Color = title, heading.Font, inkColor
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = 0, top, groupedTicks{}
	p.Y.LineStyle.Width, p.Y.Tick.LineStyle.Width, p.Y.Tick.Length = 0, 0, 6
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = nil, gridColor
	p.Add(grid)
	return p
}

// groupedTicks are the default ticks of gonum, the minor ones too unless they are many, with thin
// spaces between thousands.
type groupedTicks struct{}

// Ticks returns the ticks from lo to hi.
func (groupedTicks) Ticks(lo, hi float64) (ticks []plot.Tick) {
	all := plot.DefaultTicks{}.Ticks(lo, hi)
	for _, t := range all {
		if t.Label != "" || len(all) <= 8 {
			ticks = append(ticks, plot.Tick{Value: t.Value, Label: grouped(t.Value)})
		}
	}
	return ticks
}

// grouped returns a number with thin spaces between its thousands.
func grouped(v float64) string {
	if v != math.Trunc(v) {
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u2009" + s[i:]
	}
	return s
}

// solid returns a line through points.
func solid(points plotter.XYs, c color.Color, width vg.Length, dashes ...vg.Length) *plotter.Line {
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: width, Dashes: dashes}}
}

// area returns a filled polygon through points.
func area(points plotter.XYs, c color.Color) *plotter.Polygon {
	return &plotter.Polygon{XYs: []plotter.XYs{points}, Color: c}
}

// box returns a filled rectangle.
func box(x0, x1, y0, y1 float64, c color.Color) *plotter.Polygon {
	return area(plotter.XYs{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}, c)
}

// dots returns marks at points.
func dots(at plotter.XYs, c color.Color, shape draw.GlyphDrawer) *plotter.Scatter {
	return &plotter.Scatter{XYs: at, GlyphStyle: draw.GlyphStyle{Color: c, Radius: 2.4, Shape: shape}}
}

// entry is a line of a legend.
type entry struct {
	text string
	of   []plot.Thumbnailer
}

// chart is a drawing: plots in columns, under a title and a legend.
type chart struct {
	title  string
	legend []entry
	height vg.Length // of a row of plots
	plots  []*plot.Plot
	across int // columns at most, where there is room
}

// The widths that charts are drawn for. A column needs at least minColumn.
const (
	wide      vg.Length = 680
	narrow    vg.Length = 340
	minColumn vg.Length = 300
)

// svg returns the chart as SVG, with its title for readers who cannot see it.
func (h *chart) svg(width vg.Length) []byte {
	const left, row, sample = 14, 15, 20
	small := lettering(9, false)
	type place struct{ x, y vg.Length }
	var places []place
	x, y := vg.Length(left), vg.Length(10)
	for _, e := range h.legend {
		needs := sample + small.Width(e.text) + 28
		if x > left && x+needs > width {
			x, y = left, y+row
		}
		places = append(places, place{x, y})
		x += needs
	}
	if len(h.legend) > 0 {
		y += row + 7
	}
	columns := min(h.across, len(h.plots), max(int(width/minColumn), 1))
	rows := (len(h.plots) + columns - 1) / columns
	height := y + vg.Length(rows)*(h.height+12)

	canvas := vgsvg.New(width, height)
	whole := draw.New(canvas)
	whole.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	for i, e := range h.legend {
		l := plot.NewLegend()
		l.TextStyle, l.ThumbnailWidth, l.Top, l.Left = small, sample, true, true
		l.Add(e.text, e.of...)
		l.Draw(draw.Crop(whole, places[i].x, 0, 0, -places[i].y))
	}
	grid := make([][]*plot.Plot, rows)
	for i := range rows * columns {
		var p *plot.Plot
		if i < len(h.plots) {
			p = h.plots[i]
		}
		grid[i/columns] = append(grid[i/columns], p)
	}
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: 18, PadY: 14}
	for i, line := range plot.Align(grid, tiles, draw.Crop(whole, left, -14, 8, -y)) {
		for k, at := range line {
			if p := grid[i][k]; p != nil {
				p.Draw(at)
			}
		}
	}
	return withTitle(canvas, h.title)
}

// fontFamily is how vgsvg names the typeface.
var fontFamily = regexp.MustCompile(`font-family:Liberation Sans;`)

// withTitle returns a drawing as SVG with a title. Browsers without the typeface take a similar one.
func withTitle(canvas *vgsvg.Canvas, title string) []byte {
	var b, name bytes.Buffer
	_, err := canvas.WriteTo(&b)
	if err = errors.Join(err, xml.EscapeText(&name, []byte(title))); err != nil {
		panic(err) // a bytes.Buffer accepts everything
	}
	svg := bytes.Replace(b.Bytes(), []byte("<g "), fmt.Appendf(nil, "<title>%s</title>\n<g ", &name), 1)
	return fontFamily.ReplaceAll(svg, []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
}
