package sddp

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// ConvergenceSVG draws how the bounds came together: the lower bound, the cost of each iteration's
// forward passes with its 95 % interval, and the cost of the final simulation.
func ConvergenceSVG(c *Case, its []Iteration, sim *Simulation) []byte {
	const width, height = 860, 480
	unit, scale := c.MoneyUnit(sim.Cost.Mean)
	d := newDrawing(width, height, "Convergence of "+c.Name,
		fmt.Sprintf("Bounds of the expected cost over %d iterations, in %s.", len(its), unit))
	d.label(24, 32, "start", `font-size="17" font-weight="bold"`, "Convergence: "+c.Name)
	a := axes{left: 74, top: 104, width: width - 74 - 28, height: height - 104 - 58,
		x0: 0.5, x1: float64(len(its)) + 0.5}
	a.y0, a.y1 = costRange(its, sim, scale)
	d.frameY(a, 7)
	d.label(24, a.top-14, "start", `font-size="12" fill="`+mutedColor+`"`, "cost, "+unit)
	at, _ := ticks(1, float64(len(its)), 10)
	for _, v := range at {
		if v == math.Trunc(v) && v >= 1 {
			d.stroke(a.x(v), a.bottom(), a.x(v), a.bottom()+5, `stroke="`+mutedColor+`"`)
			d.label(a.x(v), a.bottom()+20, "middle", `font-size="12"`, grouped(v, 0))
		}
	}
	d.label(a.left+a.width/2, a.bottom()+42, "middle", `font-size="12" fill="`+mutedColor+`"`, "iteration")

	inside := func(v float64) float64 { return min(max(v/scale, a.y0), a.y1) }
	lo, hi := inside(sim.Cost.Mean-sim.Cost.CI95), inside(sim.Cost.Mean+sim.Cost.CI95)
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.16"/>`+"\n",
		a.left, a.y(hi), a.width, max(a.y(lo)-a.y(hi), 1), upperColor)
	mean := a.y(inside(sim.Cost.Mean))
	d.stroke(a.left, mean, a.right(), mean, simulatedStyle)

	off := 0
	var lower []float64
	for _, it := range its {
		x := a.x(float64(it.Number))
		lower = append(lower, x, a.y(inside(it.LowerBound)))
		if it.Upper.Mean/scale > a.y1 {
			off++
			d.path([]float64{x - 4.5, a.top + 8, x + 4.5, a.top + 8, x, a.top}, true, `fill="`+upperColor+`"`)
			continue
		}
		if !math.IsInf(it.Upper.CI95, 0) {
			d.stroke(x, a.y(inside(it.Upper.Mean-it.Upper.CI95)), x, a.y(inside(it.Upper.Mean+it.Upper.CI95)),
				`stroke="`+upperColor+`" stroke-width="1.4" stroke-opacity="0.55"`)
		}
		d.dot(x, a.y(inside(it.Upper.Mean)))
	}
	d.path(lower, false, lowerStyle)
	if len(its) == 1 {
		d.stroke(lower[0]-8, lower[1], lower[0]+8, lower[1], lowerStyle)
	}

	entries := []legendEntry{
		{func(d *drawing, x, y float64) { d.stroke(x, y, x+26, y, lowerStyle) }, "lower bound"},
		{func(d *drawing, x, y float64) {
			d.stroke(x+13, y-7, x+13, y+7, `stroke="`+upperColor+`" stroke-width="1.4" stroke-opacity="0.55"`)
			d.dot(x+13, y)
		}, "forward passes, 95 %"},
		{func(d *drawing, x, y float64) {
			fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="26" height="12" fill="%s" fill-opacity="0.16"/>`+"\n", x, y-6, upperColor)
			d.stroke(x, y, x+26, y, simulatedStyle)
		}, fmt.Sprintf("simulation of %d scenarios, 95 %%", sim.Cost.Samples)},
	}
	if off > 0 {
		entries = append(entries, legendEntry{func(d *drawing, x, y float64) {
			d.path([]float64{x + 8.5, y + 4, x + 17.5, y + 4, x + 13, y - 4}, true, `fill="`+upperColor+`"`)
		}, "above the frame"})
	}
	d.legend(24, 60, entries)
	return d.done()
}

const (
	lowerStyle     = `fill="none" stroke="` + lowerColor + `" stroke-width="2.4" stroke-linejoin="round"`
	simulatedStyle = `stroke="` + upperColor + `" stroke-width="1.4" stroke-dasharray="6 4"`
)

// dot draws the mark of a forward mean.
func (d *drawing) dot(x, y float64) {
	fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x, y, upperColor)
}

// costRange returns the costs at the lower and upper edge: from 0, so that the gap is seen for
// what it is, to where most forward means fit. The first iterations, which know nothing yet, may
// cost many times as much and are only marked.
func costRange(its []Iteration, sim *Simulation, scale float64) (lo, hi float64) {
	var tops []float64
	hi = sim.Cost.Mean + sim.Cost.CI95
	for _, it := range its {
		hi = max(hi, it.LowerBound)
		top := it.Upper.Mean
		if !math.IsInf(it.Upper.CI95, 0) {
			top += it.Upper.CI95
		}
		tops = append(tops, top)
	}
	slices.Sort(tops)
	hi = max(hi, min(quantile(tops, 0.9), 2*hi))
	if hi <= 0 {
		return 0, 1
	}
	return 0, 1.06 * hi / scale
}

// StorageSVG draws, for every reservoir, the expected storage over the stages and the band that
// holds the middle 80 % of the scenarios.
func StorageSVG(c *Case, sim *Simulation) []byte {
	const panelWidth, panelHeight, head = 430, 250, 76
	columns := min(2, len(c.Reservoirs))
	rows := (len(c.Reservoirs) + columns - 1) / columns
	width, height := max(columns*panelWidth+20, 640), head+rows*panelHeight+12
	d := newDrawing(width, height, "Storage of "+c.Name,
		fmt.Sprintf("Storage of %d reservoirs over %d stages in MW-month.", len(c.Reservoirs), c.Stages))
	d.label(24, 32, "start", `font-size="17" font-weight="bold"`, "Stored energy at the end of each stage: "+c.Name)
	d.legend(24, 58, []legendEntry{
		{func(d *drawing, x, y float64) { d.stroke(x, y, x+26, y, lowerStyle) }, "mean"},
		{func(d *drawing, x, y float64) {
			fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="26" height="12" fill="%s" fill-opacity="0.5"/>`+"\n", x, y-6, bandColor)
		}, fmt.Sprintf("10 %% to 90 %% of %d scenarios", sim.Cost.Samples)},
		{func(d *drawing, x, y float64) { d.stroke(x, y, x+26, y, capacityStyle) }, "capacity"},
	})
	for i, r := range c.Reservoirs {
		left, top := float64(i%columns*panelWidth), float64(head+i/columns*panelHeight)
		d.storagePanel(c, sim, i, axes{
			left: left + 84, top: top + 44, width: panelWidth - 84 - 8, height: panelHeight - 44 - 44,
			x0: 0, x1: float64(c.Stages), y0: 0, y1: max(1.04*r.MaxStorage, 1),
		})
	}
	return d.done()
}

const capacityStyle = `stroke="` + limitColor + `" stroke-width="1.2" stroke-dasharray="3 3"`

// storagePanel draws one reservoir. Stage 0 is the start of the horizon.
func (d *drawing) storagePanel(c *Case, sim *Simulation, i int, a axes) {
	r := c.Reservoirs[i]
	d.label(a.left, a.top-14, "start", `font-weight="bold"`, r.Name)
	d.label(a.right(), a.top-14, "end", `font-size="12" fill="`+mutedColor+`"`, "MW-month")
	d.frameY(a, 5)
	d.stroke(a.left, a.y(r.MaxStorage), a.right(), a.y(r.MaxStorage), capacityStyle)
	mean := []float64{a.x(0), a.y(r.InitialStorage)}
	band := []float64{a.x(0), a.y(r.InitialStorage)}
	for t, st := range sim.Stages {
		mean = append(mean, a.x(float64(t+1)), a.y(st.Storage[i]))
		band = append(band, a.x(float64(t+1)), a.y(st.StorageBand[i][2]))
	}
	for t, st := range slices.Backward(sim.Stages) {
		band = append(band, a.x(float64(t+1)), a.y(st.StorageBand[i][0]))
	}
	d.path(band, true, `fill="`+bandColor+`" fill-opacity="0.5"`)
	d.path(mean, false, lowerStyle)
	every := (c.Stages + 12) / 13
	for t := 0; t <= c.Stages; t += every {
		name := "start"
		if t > 0 {
			name = c.StageName(t - 1)
			if c.Stages > 6 {
				name = shortName(name)
			}
		}
		d.stroke(a.x(float64(t)), a.bottom(), a.x(float64(t)), a.bottom()+4, `stroke="`+mutedColor+`"`)
		d.label(a.x(float64(t)), a.bottom()+17, "middle", `font-size="11"`, name)
	}
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
