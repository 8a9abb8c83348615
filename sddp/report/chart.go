package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/cohort-hpc/cohort/sddp"
)

// The colors of all charts.
var (
	inkColor   = color.NRGBA{0x1f, 0x29, 0x33, 0xff}
	gridColor  = color.NRGBA{0xe3, 0xe7, 0xeb, 0xff}
	lowerColor = color.NRGBA{0x1b, 0x6c, 0xa8, 0xff}
	upperColor = color.NRGBA{0xd1, 0x63, 0x2a, 0xff}
	faintColor = color.NRGBA{0xd1, 0x63, 0x2a, 0x8c} // of error bars
	paleColor  = color.NRGBA{0xd1, 0x63, 0x2a, 0x29} // of an interval
	bandColor  = color.NRGBA{0x8f, 0xb8, 0xd8, 0x80}
	limitColor = color.NRGBA{0x9a, 0x3b, 0x3b, 0xff}
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
	for i := len(s) - 3; i > 0; i -= 3 {
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

// sheet is a drawing with a title, a legend, and room for plots.
type sheet struct {
	title string
	svg   *vgsvg.Canvas
	body  draw.Canvas
}

// entry is a line of a legend.
type entry struct {
	text string
	of   []plot.Thumbnailer
}

// newSheet starts a drawing. The entries of its legend stand side by side.
func newSheet(width, height vg.Length, title string, entries []entry) *sheet {
	const head = 62
	s := &sheet{title: title, svg: vgsvg.New(width, height)}
	whole := draw.New(s.svg)
	whole.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	style := lettering(13, true)
	style.YAlign = text.YTop
	whole.FillText(style, vg.Point{X: 18, Y: height - 14}, title)
	x := vg.Length(18)
	for _, e := range entries {
		l := plot.NewLegend()
		l.TextStyle, l.ThumbnailWidth, l.Top, l.Left = lettering(9, false), 20, true, true
		l.Add(e.text, e.of...)
		l.Draw(draw.Crop(whole, x, 0, 0, -38))
		x += 20 + l.TextStyle.Width(e.text) + 24
	}
	s.body = draw.Crop(whole, 18, -14, 10, -head)
	return s
}

// text returns the drawing as SVG, with its title for readers who cannot see it.
func (s *sheet) text() []byte {
	var b, title bytes.Buffer
	_, err := s.svg.WriteTo(&b)
	if err = errors.Join(err, xml.EscapeText(&title, []byte(s.title))); err != nil {
		panic(err) // a bytes.Buffer accepts everything
	}
	return bytes.Replace(b.Bytes(), []byte("<g "), fmt.Appendf(nil, "<title>%s</title>\n<g ", &title), 1)
}

// ConvergenceSVG draws the lower bound over the iterations, the cost of each iteration's forward
// passes with its 95 % interval, and the cost of the simulation.
//
// Local.
func ConvergenceSVG(c *sddp.Case, its []sddp.Iteration, sim *sddp.Simulation) []byte {
	unit, scale := c.MoneyUnit(sim.Cost.Mean)
	top := highestCost(its, sim) / scale
	p := newPlot("", "iteration", "cost, "+unit, top)
	p.X.Min, p.X.Max = 0, float64(len(its))+0.5
	p.X.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
		return slices.DeleteFunc(groupedTicks{}.Ticks(lo, hi), func(t plot.Tick) bool { return t.Value != math.Trunc(t.Value) || t.Value < 1 })
	})
	inside := func(v float64) float64 { return min(max(v/scale, 0), top) }
	lo, hi := inside(sim.Cost.Mean-sim.Cost.CI95), inside(sim.Cost.Mean+sim.Cost.CI95)
	interval := area(plotter.XYs{{X: p.X.Min, Y: lo}, {X: p.X.Max, Y: lo}, {X: p.X.Max, Y: hi}, {X: p.X.Min, Y: hi}}, paleColor)
	mean := inside(sim.Cost.Mean)
	simulated := solid(plotter.XYs{{X: p.X.Min, Y: mean}, {X: p.X.Max, Y: mean}}, upperColor, 1.2, 5, 3)

	var lower, means, above plotter.XYs
	bars := &plotter.YErrorBars{LineStyle: draw.LineStyle{Color: faintColor, Width: 1.2}}
	for _, it := range its {
		x := float64(it.Number)
		lower = append(lower, plotter.XY{X: x, Y: inside(it.LowerBound)})
		at := plotter.XY{X: x, Y: inside(it.Upper.Mean)}
		if it.Upper.Mean/scale > top {
			above = append(above, plotter.XY{X: x, Y: 0.98 * top})
			continue
		}
		means = append(means, at)
		if !math.IsInf(it.Upper.CI95, 0) {
			bars.XYs = append(bars.XYs, at)
			bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{
				at.Y - inside(it.Upper.Mean-it.Upper.CI95), inside(it.Upper.Mean+it.Upper.CI95) - at.Y})
		}
	}
	if len(its) == 1 {
		lower = plotter.XYs{{X: 0.9, Y: lower[0].Y}, {X: 1.1, Y: lower[0].Y}}
	}
	dots := func(at plotter.XYs, shape draw.GlyphDrawer) *plotter.Scatter {
		return &plotter.Scatter{XYs: at, GlyphStyle: draw.GlyphStyle{Color: upperColor, Radius: 2.4, Shape: shape}}
	}
	bound, costs, outside := solid(lower, lowerColor, 1.9), dots(means, draw.CircleGlyph{}), dots(above, draw.PyramidGlyph{})
	p.Add(interval, simulated, bars, costs, outside, bound)
	entries := []entry{
		{"lower bound", []plot.Thumbnailer{bound}}, {"forward passes, 95 %", []plot.Thumbnailer{costs}},
		{fmt.Sprintf("simulation of %d scenarios, 95 %%", sim.Cost.Samples), []plot.Thumbnailer{interval, simulated}},
	}
	if len(above) > 0 {
		entries = append(entries, entry{"above the frame", []plot.Thumbnailer{outside}})
	}
	s := newSheet(680, 380, "Convergence: "+c.Name, entries)
	p.Draw(s.body)
	return s.text()
}

// highestCost returns the cost at the upper edge of the chart, whose lower edge is 0 so that the gap
// appears in proportion. Most forward means fit below it. Those of the first iterations may be many
// times higher and are only marked.
func highestCost(its []sddp.Iteration, sim *sddp.Simulation) float64 {
	var tops []float64
	hi := sim.Cost.Mean + sim.Cost.CI95
	for _, it := range its {
		hi = max(hi, it.LowerBound)
		top := it.Upper.Mean
		if !math.IsInf(it.Upper.CI95, 0) {
			top += it.Upper.CI95
		}
		tops = append(tops, top)
	}
	slices.Sort(tops)
	if hi = max(hi, min(tops[9*(len(tops)-1)/10], 2*hi)); hi <= 0 {
		return 1
	}
	return 1.06 * hi
}

// StorageSVG draws the expected storage of every reservoir over the stages, and the band that holds
// the middle 80 % of the scenarios.
//
// Local.
func StorageSVG(c *sddp.Case, sim *sddp.Simulation) []byte {
	columns := min(2, len(c.Reservoirs))
	rows := (len(c.Reservoirs) + columns - 1) / columns
	plots := make([][]*plot.Plot, rows)
	var entries []entry
	for i, r := range c.Reservoirs {
		p := newPlot(r.Name, "", c.StorageUnit(), max(1.04*r.MaxStorage, 1))
		p.X.Tick.Label.Font.Size = 8
		p.X.Min, p.X.Max, p.X.Tick.Marker = 0, float64(c.Stages), plot.ConstantTicks(stageTicks(c))
		// Stage 0 is the start of the horizon.
		mean := plotter.XYs{{X: 0, Y: r.InitialStorage}}
		band := slices.Clone(mean)
		for t, st := range sim.Stages {
			mean = append(mean, plotter.XY{X: float64(t + 1), Y: st.Storage[i]})
			band = append(band, plotter.XY{X: float64(t + 1), Y: st.StorageBand[i][2]})
		}
		for t, st := range slices.Backward(sim.Stages) {
			band = append(band, plotter.XY{X: float64(t + 1), Y: st.StorageBand[i][0]})
		}
		middle, line := area(band, bandColor), solid(mean, lowerColor, 1.9)
		capacity := solid(plotter.XYs{{X: 0, Y: r.MaxStorage}, {X: float64(c.Stages), Y: r.MaxStorage}}, limitColor, 1, 3, 3)
		p.Add(middle, capacity, line)
		plots[i/columns] = append(plots[i/columns], p)
		entries = []entry{{"mean", []plot.Thumbnailer{line}},
			{fmt.Sprintf("10 %% to 90 %% of %d scenarios", sim.Cost.Samples), []plot.Thumbnailer{middle}}, {"capacity", []plot.Thumbnailer{capacity}}}
	}
	for len(plots[rows-1]) < columns {
		plots[rows-1] = append(plots[rows-1], nil)
	}
	s := newSheet(vg.Length(max(340*columns, 500)), vg.Length(72+200*rows), "Storage at the end of each stage: "+c.Name, entries)
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: 18, PadY: 14}
	canvases := plot.Align(plots, tiles, s.body)
	for i, row := range plots {
		for k, p := range row {
			if p != nil {
				p.Draw(canvases[i][k])
			}
		}
	}
	return s.text()
}

// stageTicks returns at most 14 ticks: the start of the horizon and the ends of stages.
func stageTicks(c *sddp.Case) (ticks []plot.Tick) {
	every := (c.Stages + 12) / 13
	for t := 0; t <= c.Stages; t += every {
		name := "start"
		if t > 0 {
			name = c.StageName(t - 1)
		}
		if c.Stages > 6 && t > 0 {
			name = shortName(name)
		}
		ticks = append(ticks, plot.Tick{Value: float64(t), Label: name})
	}
	return ticks
}

// shortName returns the first three letters of a name.
func shortName(s string) string {
	n := 0
	for range 3 {
		_, size := utf8.DecodeRuneInString(s[n:])
		n += size
	}
	return s[:n]
}
