package chart

import (
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

func TestChartChoosesScales(t *testing.T) {
	for _, c := range []struct {
		lo, hi, base float64
		first, last  float64
		labels       int
	}{
		{8, 4 << 20, 2, 8, 1 << 24, 8}, {9, 9, 2, 8, 16, 2}, {8, 8, 2, 8, 16, 2}, {2e-7, 9e-4, 10, 1e-7, 1e-3, 5}, {0.5, 1000, 10, 0.1, 1000, 5},
	} {
		a := plot.New().X
		axis(&a, c.lo, c.hi, c.base, func(float64) string { return "x" })
		if ticks := a.Tick.Marker.Ticks(0, 0); math.Abs(a.Min/c.first-1) > 1e-9 || math.Abs(a.Max/c.last-1) > 1e-9 || len(ticks) != c.labels {
			t.Errorf("axis from %v to %v: %v to %v with %d labels, want %v to %v with %d", c.lo, c.hi, a.Min, a.Max, len(ticks), c.first, c.last, c.labels)
		}
	}
	for v, want := range map[float64]string{1e-8: "10 ns", 1e-6: "1 µs", 1e-4: "100 µs", 1: "1 s", 1e10: "10 Gs"} {
		if got := SI(v, "s"); got != want {
			t.Errorf("SI(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{8: "8", 1 << 10: "1 Ki", 1 << 22: "4 Mi"} {
		if got := binaryUnit(v); got != want {
			t.Errorf("binaryUnit(%v) = %q, want %q", v, got, want)
		}
	}
}

// TestLegend has each name once, whatever panels it is in, and in as many rows as the names need.
func TestLegend(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chart.svg")
	label := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	var many []Curve
	for i := range 12 {
		many = append(many, Curve{Name: "a curve of number " + strconv.Itoa(i), Color: color.Black, Dashed: i%2 > 0, Points: []Point{{X: 8, Y: float64(i + 1)}}})
	}
	panel := Panel{Title: "ratio", Base: 2, Label: label, Curves: append(many, Curve{Color: color.Black, Points: []Point{{X: 8, Y: 1}, {X: 64, Y: 1}}})}
	if err := Write(file, "title", panel, panel); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range many {
		if n := strings.Count(string(text), ">"+c.Name+"<"); n != 1 {
			t.Errorf("%q is there %d times, want 1", c.Name, n)
		}
	}
	if err := Write(filepath.Join(t.TempDir(), "none", "chart.svg"), "title", panel); err == nil {
		t.Error("a chart in a folder that does not exist is written")
	}
}
