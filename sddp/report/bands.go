package report

import (
	"fmt"
	"image/color"
	"math"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/cohort-hpc/cohort/sddp"
)

// colorOf is the type of all colors here.
type colorOf = color.NRGBA

// storage draws the mean storage of the system, in percent, and of every reservoir at the ends of the stages, and
// the band that holds the middle 80 % of the scenarios. Reservoirs that hold no water are left out.
func (r *Run) storage() *chart {
	c := &chart{title: "Storage at the end of each stage: " + r.Case.Name, height: 190, across: 2}
	start, capacity, holding := 0.0, 0.0, 0
	add := func(name, unit string, most, first float64, at func(st *sddp.StageResult) (float64, sddp.Band)) {
		mean, bands := plotter.XYs{{X: 0, Y: first}}, []sddp.Band{{first, first, first}} // the start of the horizon
		for t := range r.Simulation.Stages {
			x, band := at(&r.Simulation.Stages[t])
			mean, bands = append(mean, plotter.XY{X: float64(t + 1), Y: x}), append(bands, band)
		}
		p := newPlot(name, "", unit, 1.04*most)
		c.plots, c.legend = append(c.plots, p), r.bandPlot(p, mean, bands)
		full := solid(plotter.XYs{{X: 0, Y: most}, {X: float64(r.Case.Stages), Y: most}}, limitColor, 1, 3, 3)
		p.Add(full)
		c.legend = append(c.legend, entry{"capacity", []plot.Thumbnailer{full}})
		p.X.Tick.Marker = plot.ConstantTicks(stageTicks(r.Case, false))
	}
	for i, res := range r.Case.Reservoirs {
		if res.MaxStorage > 0 {
			start, capacity, holding = start+res.InitialStorage, capacity+res.MaxStorage, holding+1
			add(res.Name, r.Case.StorageUnit(), res.MaxStorage, res.InitialStorage, func(st *sddp.StageResult) (float64, sddp.Band) {
				return st.Storage[i], st.StorageBand[i]
			})
		}
	}
	if holding > 1 {
		add("system", "%", 100, 100*start/capacity, func(st *sddp.StageResult) (float64, sddp.Band) {
			b := st.FilledBand
			return 100 * st.Filled, sddp.Band{100 * b[0], 100 * b[1], 100 * b[2]}
		})
		c.plots = append(c.plots[holding:], c.plots[:holding]...)
	}
	return c
}

// marginal draws the marginal cost of every bus with a load over the stages, with the band that holds the
// middle 80 % of the scenarios. All have the same axis.
func (r *Run) marginal() *chart {
	c := &chart{title: "Marginal cost of load: " + r.Case.Name, height: 190, across: 2}
	top := 1.0
	for _, st := range r.Simulation.Stages {
		for b := range r.Case.Buses {
			top = max(top, 1.06*st.MarginalCost[b], 1.06*st.MarginalBand[b][2])
		}
	}
	for b, bus := range r.Case.Buses {
		if bus.LoadMW == nil {
			continue
		}
		var mean plotter.XYs
		var bands []sddp.Band
		for t, st := range r.Simulation.Stages {
			mean = append(mean, plotter.XY{X: float64(t) + 0.5, Y: st.MarginalCost[b]})
			bands = append(bands, st.MarginalBand[b])
		}
		p := newPlot(bus.Name, "", r.Case.Currency+"/MWh", top)
		c.plots, c.legend = append(c.plots, p), r.bandPlot(p, mean, bands)
		p.X.Tick.Marker = plot.ConstantTicks(stageTicks(r.Case, true))
	}
	return c
}

// bandPlot draws a line with a band around it, and returns the legend.
func (r *Run) bandPlot(p *plot.Plot, mean plotter.XYs, bands []sddp.Band) []entry {
	p.X.Tick.Label.Font.Size = 8
	p.X.Min, p.X.Max = 0, float64(r.Case.Stages)
	var around plotter.XYs
	for i, at := range mean {
		around = append(around, plotter.XY{X: at.X, Y: bands[i][2]})
	}
	for i := len(mean) - 1; i >= 0; i-- {
		around = append(around, plotter.XY{X: mean[i].X, Y: bands[i][0]})
	}
	middle, line := area(around, bandColor), solid(mean, lowerColor, 1.9)
	p.Add(middle, line)
	return []entry{
		{"mean", []plot.Thumbnailer{line}},
		{fmt.Sprintf("10 %% to 90 %% of %d scenarios", r.Simulation.Cost.Samples), []plot.Thumbnailer{middle}},
	}
}

// stageTicks returns at most 14 labels of stages, in the middle of a stage or at its end. Where the periods
// are a year, the first period of each has the number of the year below it.
func stageTicks(c *sddp.Case, middle bool) (ticks []plot.Tick) {
	offset := 1.0
	if middle {
		offset = 0.5
	} else {
		ticks = append(ticks, plot.Tick{Value: 0, Label: "start"})
	}
	yearly := isYear(c) && c.Stages > len(c.Periods)
	every := (c.Stages + 12) / 13
	for n := len(c.Periods); yearly && n%every != 0 && every%n != 0; { // the same periods in every year
		every++
	}
	for t := 0; t < c.Stages; t += every {
		name := c.StageName(t)
		if c.Stages > 6 {
			name = shortName(name)
		}
		if yearly && (t == 0 || c.Period(t) == 0) {
			name += fmt.Sprintf("\nyear %d", (c.FirstPeriod+t)/len(c.Periods)+1)
			if len(ticks) > 0 && ticks[0].Label == "start" && t == 0 {
				ticks = ticks[1:] // no room for both
			}
		}
		ticks = append(ticks, plot.Tick{Value: float64(t) + offset, Label: name})
	}
	return ticks
}

// isYear reports whether the periods of a case last a year together.
func isYear(c *sddp.Case) bool {
	hours := 0.0
	for t := range c.Periods {
		hours += c.Hours(t)
	}
	return math.Abs(hours-8760) < 200
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
