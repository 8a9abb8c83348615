package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/cohort-hpc/cohort/sddp"
)

// convergence draws the bounds over the iterations: the lower bound, the cost of each iteration's forward
// passes with its 95 % interval, and the cost of the simulation.
func (r *Run) convergence() *chart {
	its, sim := r.Training.Iterations, r.Simulation
	unit, scale := r.Case.MoneyUnit(sim.Cost.Mean)
	top := highestCost(its, sim) / scale
	p := newPlot("", "iteration", "cost, "+unit, top)
	iterationAxis(p, len(its))
	inside := func(v float64) float64 { return min(max(v/scale, 0), top) }
	interval := box(p.X.Min, p.X.Max, inside(sim.Cost.Mean-sim.Cost.CI95), inside(sim.Cost.Mean+sim.Cost.CI95), paleColor)
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
	bound, costs := solid(orShortLine(lower), lowerColor, 1.9), dots(means, upperColor, draw.CircleGlyph{})
	outside := dots(above, upperColor, draw.PyramidGlyph{})
	p.Add(interval, simulated, bars, costs, outside, bound)
	c := &chart{
		title: "Convergence: " + r.Case.Name, height: 270, plots: []*plot.Plot{p}, across: 1,
		legend: []entry{
			{"lower bound", []plot.Thumbnailer{bound}}, {"forward passes, 95 %", []plot.Thumbnailer{costs}},
			{fmt.Sprintf("simulation of %d scenarios, 95 %%", sim.Cost.Samples), []plot.Thumbnailer{interval, simulated}},
		},
	}
	if len(above) > 0 {
		c.legend = append(c.legend, entry{"above the frame", []plot.Thumbnailer{outside}})
	}
	return c
}

// iterationAxis makes the horizontal axis one of iterations.
func iterationAxis(p *plot.Plot, n int) {
	p.X.Min, p.X.Max = 0, float64(n)+0.5
	p.X.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
		return slices.DeleteFunc(groupedTicks{}.Ticks(lo, hi), func(t plot.Tick) bool { return t.Value != math.Trunc(t.Value) || t.Value < 1 })
	})
}

// orShortLine returns points, or two near a single one, so that a line can be seen.
func orShortLine(points plotter.XYs) plotter.XYs {
	if len(points) != 1 {
		return points
	}
	at := points[0]
	return plotter.XYs{{X: at.X - 0.1, Y: at.Y}, {X: at.X + 0.1, Y: at.Y}}
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

// generation draws how hydro and thermal plants serve the load of each stage, in the mean of the scenarios.
func (r *Run) generation() *chart {
	most := 0.0
	for _, st := range r.Simulation.Stages {
		most = max(most, total(st.Load), total(st.Hydro)+total(st.Thermal)+total(st.Deficit))
	}
	if most == 0 {
		return &chart{} // no plants and no load
	}
	p := newPlot("", "", "MW", 1.06*most)
	p.X.Min, p.X.Max = 0, float64(r.Case.Stages)
	p.X.Tick.Marker, p.X.Tick.Length = plot.ConstantTicks(stageTicks(r.Case, true)), 0
	var layers [3]plot.Thumbnailer
	var load plotter.XYs
	for t, st := range r.Simulation.Stages {
		from, x0, x1 := 0.0, float64(t)+0.1, float64(t)+0.9
		for i, mw := range []float64{total(st.Hydro), total(st.Thermal), total(st.Deficit)} {
			bar := box(x0, x1, from, from+mw, []colorOf{hydroColor, thermalColor, deficitColor}[i])
			from += mw
			layers[i] = bar
			p.Add(bar)
		}
		load = append(load, plotter.XY{X: float64(t), Y: total(st.Load)}, plotter.XY{X: float64(t + 1), Y: total(st.Load)})
	}
	line := solid(load, inkColor, 1.4)
	p.Add(line)
	return &chart{
		title: "Mean generation: " + r.Case.Name, height: 240, plots: []*plot.Plot{p}, across: 1,
		legend: []entry{
			{"hydro", layers[:1]}, {"thermal", layers[1:2]}, {"deficit", layers[2:]}, {"load", []plot.Thumbnailer{line}},
		},
	}
}

// costs draws a histogram of the costs of the scenarios.
func (r *Run) costs() *chart {
	sim := r.Simulation
	unit, scale := r.Case.MoneyUnit(sim.Cost.Mean)
	lo, hi := sim.Quantile(0)/scale, sim.Quantile(1)/scale
	width := roundWidth((hi - lo) / max(8, min(1.5*math.Sqrt(float64(len(sim.Scenarios))), 40)))
	first := math.Floor(lo / width)
	counts := make([]float64, int(math.Floor(hi/width)-first)+1)
	for _, s := range sim.Scenarios {
		counts[min(max(int(s.Cost/scale/width-first), 0), len(counts)-1)]++
	}
	p := newPlot("", "cost of the horizon, "+unit, "scenarios", 1.08*slices.Max(counts))
	p.X.Min, p.X.Max, p.X.Tick.Marker = first*width, (first+float64(len(counts)))*width, groupedTicks{}
	for i, n := range counts {
		from := (first + float64(i)) * width
		if n > 0 {
			p.Add(box(from+0.04*width, from+0.96*width, 0, n, hydroColor))
		}
	}
	mark := func(at float64, c colorOf, dashes ...vg.Length) *plotter.Line {
		at = min(max(at/scale, p.X.Min), p.X.Max)
		l := solid(plotter.XYs{{X: at, Y: 0}, {X: at, Y: p.Y.Max}}, c, 1.5, dashes...)
		p.Add(l)
		return l
	}
	mean, tail := mark(sim.Cost.Mean, inkColor), mark(sim.CVaR(r.tail()), deficitColor, 5, 3)
	return &chart{
		title: "Cost of the scenarios: " + r.Case.Name, height: 210, plots: []*plot.Plot{p}, across: 1,
		legend: []entry{
			{"mean", []plot.Thumbnailer{mean}},
			{fmt.Sprintf("mean of the costliest %g %% (CVaR)", 100*r.tail()), []plot.Thumbnailer{tail}},
		},
	}
}

// roundWidth returns the least of 1, 2, 2.5 and 5 times a power of ten that is at least x.
func roundWidth(x float64) float64 {
	if !(x > 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*unit >= x {
			return m * unit
		}
	}
	return 10 * unit
}
