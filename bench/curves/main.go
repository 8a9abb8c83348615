// Command curves draws docs/scale-flat.svg and docs/scale-nodes.svg: the predicted time of each algorithm
// against the number of ranks, with one rank on a node and with 64. It takes minutes:
//
//	go run ./bench/curves docs
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/bench/internal/loggp"
	"github.com/cohort-hpc/cohort/internal/chart"
	"github.com/cohort-hpc/cohort/internal/coll"
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

var colors = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#ff7f0e"}

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
	var drawn []chart.Panel
	for _, p := range slices.Concat(panels...) {
		title := fmt.Sprintf("%v, %d B", p.coll, p.bytes)
		if p.block {
			title += " a rank"
		}
		curves, err := curves(m, func(n int) *backend.Call {
			bytes := p.bytes
			if p.block && p.coll != backend.Gather {
				bytes *= n
			}
			return loggp.Call(p.coll, n, bytes)
		})
		if err != nil {
			return err
		}
		drawn = append(drawn, chart.Panel{
			Title: title, Curves: curves,
			X: chart.Axis{Name: "ranks", Base: 2, Label: func(v float64) string { return fmt.Sprintf("%g", v) }},
			Y: chart.Axis{Base: 10, Label: func(v float64) string { return chart.SI(v, "s") }},
		})
	}
	return chart.Write(file, fmt.Sprintf("predicted times, ranks on a node: %d; dots are on the chosen algorithm", m.Ranks), len(panels[0]), drawn...)
}

// curves returns a line for each algorithm of a call, and dots on the one that is chosen.
func curves(m *loggp.Machine, call func(n int) *backend.Call) ([]chart.Curve, error) {
	var lines []chart.Curve
	chosen := chart.Curve{Color: "black", Dot: 3}
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
			_, short, _ := strings.Cut(name, "/")
			k := slices.IndexFunc(lines, func(l chart.Curve) bool { return l.Name == short })
			if k < 0 {
				k = len(lines)
				lines = append(lines, chart.Curve{Name: short, Color: colors[k%len(colors)], Width: 1.5, Dashed: k >= len(colors)})
			}
			at := chart.Point{X: float64(n), Y: seconds}
			lines[k].Points = append(lines[k].Points, at)
			if i == 0 {
				chosen.Points = append(chosen.Points, at)
			}
		}
	}
	return append(lines, chosen), nil
}
