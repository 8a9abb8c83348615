// Command curves draws docs/scale-flat.svg and docs/scale-nodes.svg: the predicted time of each algorithm
// against the number of ranks, with one rank on a node and with 64. It takes minutes:
//
//	go run ./bench/curves docs
package main

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/coll"
	"github.com/cohort-hpc/cohort/internal/loggp"
)

// limit is how many messages are simulated for one point: a curve ends at more, see loggp.NewProgram.
const limit = 1 << 16

// most is the greatest number of ranks; schedules of more ranks on nodes take minutes to build.
func most(m *loggp.Machine) int {
	if m.Ranks > 1 {
		return 1 << 11
	}
	return 1 << 16
}

// panels are the diagrams of a page, row by row: a collective, and the bytes of a vector, or of a rank's
// block.
var panels = [][]struct {
	coll  backend.Coll
	bytes int
	block bool
}{
	{{backend.Bcast, 1 << 10, false}, {backend.Bcast, 1 << 20, false}},
	{{backend.Allreduce, 1 << 10, false}, {backend.Allreduce, 1 << 20, false}},
	{{backend.ReduceScatterBlock, 8, true}, {backend.ReduceScatterBlock, 4 << 10, true}},
	{{backend.Allgather, 8, true}, {backend.Allgather, 4 << 10, true}},
	{{backend.Gather, 8, true}, {backend.Gather, 4 << 10, true}},
}

var colors = []color.Color{
	color.RGBA{0x1f, 0x77, 0xb4, 0xff}, color.RGBA{0xd6, 0x27, 0x28, 0xff}, color.RGBA{0x2c, 0xa0, 0x2c, 0xff},
	color.RGBA{0x94, 0x67, 0xbd, 0xff}, color.RGBA{0x8c, 0x56, 0x4b, 0xff}, color.RGBA{0xff, 0x7f, 0x0e, 0xff},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: curves FOLDER")
		os.Exit(2)
	}
	for perNode, name := range map[int]string{1: "scale-flat.svg", 64: "scale-nodes.svg"} {
		if err := page(filepath.Join(os.Args[1], name), loggp.Cluster(perNode)); err != nil {
			fmt.Fprintln(os.Stderr, "curves:", err)
			os.Exit(1)
		}
	}
}

// page draws all panels for a machine.
func page(file string, m *loggp.Machine) error {
	width, height := 10*vg.Inch, 3.2*vg.Inch*vg.Length(len(panels))
	svg := vgsvg.New(width, height)
	canvas := draw.New(svg)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	var plots [][]*plot.Plot
	for _, row := range panels {
		var line []*plot.Plot
		for _, p := range row {
			title := fmt.Sprintf("%v, %d B", p.coll, p.bytes)
			if p.block {
				title += " a rank"
			}
			drawn, err := panel(title, m, func(n int) *backend.Call {
				bytes := p.bytes
				if p.block && p.coll != backend.Gather {
					bytes *= n
				}
				return loggp.Call(p.coll, n, bytes)
			})
			if err != nil {
				return err
			}
			line = append(line, drawn)
		}
		plots = append(plots, line)
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: len(panels[0]), PadX: 24, PadY: 14, PadTop: 10, PadBottom: 8, PadLeft: 8, PadRight: 20}
	for i, row := range plot.Align(plots, tiles, canvas) {
		for k, c := range row {
			plots[i][k].Draw(c)
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = svg.WriteTo(f)
	return errors.Join(err, f.Close())
}

// panel draws the algorithms of a call: a line for each, and dots on the one that is chosen.
func panel(title string, m *loggp.Machine, call func(n int) *backend.Call) (*plot.Plot, error) {
	curves := map[string]plotter.XYs{}
	var names []string
	var chosen plotter.XYs
	for n := 2 * m.Ranks; n <= most(m); n *= 2 {
		c := call(n)
		all, err := coll.Algorithms(c, 0, n, m.Nodes(n))
		if err != nil {
			return nil, err
		}
		for i, name := range all {
			seconds, err := loggp.Predict(m, name, c, n, limit)
			if errors.Is(err, loggp.ErrLarge) {
				continue
			}
			if err != nil {
				return nil, err
			}
			at := plotter.XY{X: float64(n), Y: seconds}
			if curves[name] == nil {
				names = append(names, name)
			}
			if curves[name] = append(curves[name], at); i == 0 {
				chosen = append(chosen, at)
			}
		}
	}
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "ranks", "seconds"
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font,
		&p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant, f.Size = "Sans", vg.Points(9)
	}
	p.Legend.Left, p.Legend.Top = true, true
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	for i, name := range names {
		line := &plotter.Line{XYs: curves[name], LineStyle: draw.LineStyle{Color: colors[i%len(colors)], Width: vg.Points(1.2)}}
		if i >= len(colors) {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(line)
		_, short, _ := strings.Cut(name, "/")
		p.Legend.Add(short, line)
	}
	p.Add(&plotter.Scatter{XYs: chosen, GlyphStyle: draw.GlyphStyle{Color: color.Black, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}})
	return p, nil
}
