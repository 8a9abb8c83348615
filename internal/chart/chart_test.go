package chart

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestChartChoosesScales(t *testing.T) {
	for _, c := range []struct {
		lo, hi, base float64
		first, last  float64
		labels       int
	}{
		{8, 4 << 20, 2, 8, 1 << 24, 8}, {9, 9, 2, 8, 16, 2}, {8, 8, 2, 8, 16, 2}, {2e-7, 9e-4, 10, 1e-7, 1e-3, 5}, {0.5, 1000, 10, 0.1, 1000, 5},
	} {
		s := Axis{Base: c.base}.scale(c.lo, c.hi, 0, 1)
		if math.Abs(s.first/c.first-1) > 1e-9 || math.Abs(s.last/c.last-1) > 1e-9 || len(s.marks) != c.labels {
			t.Errorf("axis from %v to %v: %v to %v with %d labels, want %v to %v with %d", c.lo, c.hi, s.first, s.last, len(s.marks), c.first, c.last, c.labels)
		}
	}
	for v, want := range map[float64]string{1e-8: "10 ns", 1e-6: "1 µs", 1e-4: "100 µs", 1: "1 s", 1e10: "10 Gs", 89.6e-9: "89.6 ns", 9.996e-7: "1 µs", 1234e-6: "1.23 ms", 2.5: "2.5 s"} {
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

// drawn returns the texts of a chart, and the points of its lines.
func drawn(t *testing.T, columns int, panels ...Panel) (texts, lines []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chart.svg")
	if err := Write(file, "a < b", columns, panels...); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Text   []string `xml:"text"`
		Panels []struct {
			Text  []string `xml:"text"`
			Lines []struct {
				Points string `xml:"points,attr"`
			} `xml:"polyline"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(data, &svg); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	texts = svg.Text
	for _, p := range svg.Panels {
		texts = append(texts, p.Text...)
		for _, l := range p.Lines {
			lines = append(lines, strings.TrimSpace(l.Points))
		}
	}
	return texts, lines
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

func TestCurveGoesFromCornerToCorner(t *testing.T) {
	p := Panel{Title: "time", X: Bytes, Y: Axis{Base: 10, Label: decimal}, Curves: []Curve{
		{Color: "black", Width: 1, Points: []Point{{1, 1}, {4, 10}, {16, 100}}},
	}}
	texts, lines := drawn(t, 1, p)
	for _, want := range []string{"a < b", "time", "message size (bytes)", "1", "16", "10", "100"} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is not among the texts %q", want, texts)
		}
	}
	const right, bottom, top = width - right, height - bottom, 28
	want := fmt.Sprintf("%d.0,%d.0 %.1f,%.1f %d.0,%d.0", left, bottom, float64(left+right)/2, float64(top+bottom)/2, right, top)
	if len(lines) != 1 || lines[0] != want {
		t.Errorf("the lines are %q, want one: %q", lines, want)
	}
}

// TestLegendNamesEachCurve has names for several rows, and panels in two rows.
func TestLegendNamesEachCurve(t *testing.T) {
	var many []Curve
	for i := range 12 {
		many = append(many, Curve{Name: "a curve of number " + strconv.Itoa(i), Color: "black", Dot: 2, Dashed: i%2 > 0, Points: []Point{{X: 8, Y: float64(i + 1)}}})
	}
	panel := Panel{Title: "ratio", X: Bytes, Y: Axis{Base: 2, Label: decimal}, Curves: append(many, Curve{Color: "black", Width: 1, Points: []Point{{X: 8, Y: 1}, {X: 64, Y: 1}}})}
	texts, lines := drawn(t, 2, panel, panel, panel)
	for _, c := range many {
		if n := len(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s != c.Name })); n != 3 {
			t.Errorf("%q is there %d times, want 3", c.Name, n)
		}
	}
	if len(lines) != 3 {
		t.Errorf("there are %d lines, want 3: %q", len(lines), lines)
	}
	if err := Write(filepath.Join(t.TempDir(), "none", "chart.svg"), "title", 1, panel); err == nil {
		t.Error("a chart in a folder that does not exist is written")
	}
}
