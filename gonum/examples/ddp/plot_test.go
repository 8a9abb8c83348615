package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// picture is what a plot has, as XML.
type picture struct {
	Width  float64 `xml:"width,attr"`
	Height float64 `xml:"height,attr"`
	Texts  []label `xml:"text"`
	Lines  []struct {
		Points string `xml:"points,attr"`
	} `xml:"polyline"`
}

type label struct {
	Class string  `xml:"class,attr"`
	X     float64 `xml:"x,attr"`
	Y     float64 `xml:"y,attr"`
	Text  string  `xml:",chardata"`
}

// axis is where numbers stand on an axis, by its first and its last label.
type axis struct {
	from, to float64 // numbers
	at, end  float64 // their places
}

func (a axis) place(number float64) float64 {
	if a.from == a.to {
		return a.at
	}
	return a.at + (a.end-a.at)*(number-a.from)/(a.to-a.from)
}

// axisOf reads the labels of a class. They stand where the scale of the first and the last says.
func (p *picture) axisOf(t *testing.T, class string, place func(label) float64) axis {
	t.Helper()
	var numbers, places []float64
	for _, l := range p.Texts {
		if l.Class != class {
			continue
		}
		x, err := strconv.ParseFloat(l.Text, 64)
		if err != nil {
			t.Fatalf("a label of axis %s: %v", class, err)
		}
		if k := len(numbers); k > 0 && x <= numbers[k-1] {
			t.Errorf("axis %s: %v after %v", class, x, numbers)
		}
		numbers, places = append(numbers, x), append(places, place(l))
	}
	if len(numbers) == 0 || len(numbers) > 12 {
		t.Fatalf("axis %s has the labels %v", class, numbers)
	}
	k := len(numbers) - 1
	a := axis{numbers[0], numbers[k], places[0], places[k]}
	for i, x := range numbers {
		if math.Abs(a.place(x)-places[i]) > 0.15 { // of rounding, to a tenth of a pixel
			t.Errorf("axis %s: %g stands at %g, want %g", class, x, places[i], a.place(x))
		}
	}
	return a
}

// checkPlot reads a picture: by the labels of its axes there is a line of the losses, and another one
// of means over the steps around each; all is within the picture. Neither line has points that are not numbers.
func checkPlot(t *testing.T, text []byte, losses []float64) {
	t.Helper()
	var p picture
	if err := xml.Unmarshal(text, &p); err != nil {
		t.Fatalf("the picture: %v", err)
	}
	steps := p.axisOf(t, "step", func(l label) float64 { return l.X })
	loss := p.axisOf(t, "loss", func(l label) float64 { return l.Y })
	if steps.from != 1 || loss.from != 0 || loss.to <= 0 {
		t.Errorf("the axes begin with step %g and loss %g, and that of losses ends with %g", steps.from, loss.from, loss.to)
	}
	names := make(map[string]int)
	for _, l := range p.Texts {
		names[l.Text]++
		if l.X < 0 || l.X > p.Width || l.Y < 0 || l.Y > p.Height {
			t.Errorf("%q is at %g, %g", l.Text, l.X, l.Y)
		}
	}
	for _, name := range []string{"step", "loss (cross entropy)", "each step", "mean of the 21 steps around it"} {
		if names[name] != 1 {
			t.Errorf("%d times %q", names[name], name)
		}
	}
	if len(p.Lines) != 2 {
		t.Fatalf("%d lines, want 2", len(p.Lines))
	}
	for k, line := range p.Lines {
		points := strings.Fields(line.Points)
		for i, want := range losses {
			if k == 1 {
				want = meanAround(losses, i)
			}
			if !finite(want) {
				continue
			}
			if len(points) == 0 {
				t.Fatalf("line %d ends before step %d", k, i+1)
			}
			var x, y float64
			point := points[0]
			points = points[1:]
			if _, err := fmt.Sscanf(point, "%g,%g", &x, &y); err != nil {
				t.Fatalf("line %d: %q: %v", k, point, err)
			}
			if !(math.Abs(x-steps.place(float64(i+1))) <= 0.15 && math.Abs(y-loss.place(want)) <= 0.15) {
				t.Fatalf("line %d: step %d stands at %s, want %.1f,%.1f", k, i+1, point, steps.place(float64(i+1)), loss.place(want))
			}
			if x < 0 || x > p.Width || y < 0 || y > p.Height {
				t.Fatalf("line %d leaves the picture, at %s", k, point)
			}
		}
		if len(points) > 0 {
			t.Errorf("line %d has %d points more than there are losses", k, len(points))
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// meanAround is the mean of those finite losses that are at most ten steps from i.
func meanAround(losses []float64, i int) float64 {
	sum, n := 0.0, 0.0
	for k, l := range losses {
		if k-i <= 10 && i-k <= 10 && finite(l) {
			sum, n = sum+l, n+1
		}
	}
	return sum / n
}

// The test draws losses of few and of many steps, small and large.
func TestPlotDrawsLosses(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 40, 137, 400, 2001} {
		for _, first := range []float64{1e-4, 0.08, 1, 1.1218, 99.9, 12345} {
			losses := make([]float64, n)
			for i := range losses {
				losses[i] = first * math.Exp(-2*float64(i)/float64(n)) * (1 - 0.2*math.Mod(float64(i)*0.618, 1))
			}
			t.Run(fmt.Sprintf("%d-%g", n, first), func(t *testing.T) { checkPlot(t, draw(losses), losses) })
		}
	}
	nan, inf := math.NaN(), math.Inf(1)
	gone := append(slices.Repeat([]float64{3}, 5), slices.Repeat([]float64{nan}, 40)...) // for good
	for _, losses := range [][]float64{{0, 0, 0}, {1, nan, 5}, {nan, 2}, {2, inf, 1, -inf}, gone, {nan}, {nan, nan, inf}} {
		t.Run(fmt.Sprintf("%.20s", fmt.Sprint(losses)), func(t *testing.T) { checkPlot(t, draw(losses), losses) })
	}
	// A finite number that is too large for the scale is not drawn either.
	checkPlot(t, draw([]float64{1, math.MaxFloat64, 2}), []float64{1, inf, 2})
}
