package main

import (
	"fmt"

	"github.com/cohort-hpc/cohort/internal/chart"
)

// writePlot draws results of one operation as SVG: time and throughput by message size.
func writePlot(file string, all []result) error {
	var times, rates []chart.Point
	for _, r := range all {
		if r.Bytes > 0 {
			times = append(times, chart.Point{X: float64(r.Bytes), Y: r.Usec * 1e-6})
			rates = append(rates, chart.Point{X: float64(r.Bytes), Y: float64(r.Bytes) / (r.Usec * 1e-6)})
		}
	}
	if len(times) == 0 {
		return fmt.Errorf("%s has no message sizes above 0 to draw", all[0].Op)
	}
	panel := func(title, unit, color string, points []chart.Point) chart.Panel {
		label := func(v float64) string { return chart.SI(v, unit) }
		return chart.Panel{Title: title, X: chart.Bytes, Y: chart.Axis{Base: 10, Label: label}, Curves: []chart.Curve{{Color: color, Width: 2, Dot: 3, Points: points}}}
	}
	return chart.Write(file, fmt.Sprintf("%s: %s, %d ranks", all[0].Op, all[0].Lib, all[0].Ranks), 2,
		panel("time of one call", "s", "#1f77b4", times), panel("throughput", "B/s", "#d62728", rates))
}
