package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/sddp"
)

// progress tells on rank 0 how far the training is: a line per iteration, and on a terminal a bar
// below them.
type progress struct {
	first  func() bool // whether this is the rank that tells
	w      io.Writer
	bar    bool
	most   int // iterations
	began  time.Time
	lines  int
	before int  // iterations that were not told of here
	hasBar bool // a bar is on the screen
}

// newProgress returns the progress of a rank.
func newProgress(first func() bool, f *os.File, most int) *progress {
	info, err := f.Stat()
	bar := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &progress{first: first, w: f, bar: bar, most: most, began: time.Now()}
}

// iteration tells of an iteration.
func (p *progress) iteration(it sddp.Iteration) {
	if !p.first() {
		p.before, p.began = it.Number, time.Now() // should this rank become the first one
		return
	}
	p.clear()
	if p.lines == 0 && it.Number > 1 && p.before == 0 {
		p.before = it.Number - 1
		fmt.Fprintf(p.w, "sddp: going on after iteration %d\n", p.before)
	}
	if p.lines%25 == 0 {
		fmt.Fprintf(p.w, "%9s  %13s  %13s  %13s  %8s  %7s  %8s  %8s\n",
			"iteration", "lower bound", "upper mean", "± 95 %", "gap", "cuts", "LP", "comm")
	}
	p.lines++
	interval, gap := "-", "-"
	if !math.IsInf(it.Upper.CI95, 0) {
		interval, gap = fmt.Sprintf("%.6g", it.Upper.CI95), fmt.Sprintf("%.2f %%", 100*it.Gap)
	}
	fmt.Fprintf(p.w, "%4d/%-4d  %13.7g  %13.7g  %13s  %8s  %7d  %8s  %8s\n",
		it.Number, p.most, it.LowerBound, it.Upper.Mean, interval, gap, it.Cuts, short(it.LP), short(it.Comm))
	if p.bar {
		p.draw(it.Number)
	}
}

// warn tells of what does not end the training.
func (p *progress) warn(err error) {
	if p.first() {
		p.clear()
		fmt.Fprintf(p.w, "sddp: warning: %v\n", err)
	}
}

// short returns a time with three digits.
func short(d time.Duration) string {
	switch s := d.Seconds(); {
	case s >= 100:
		return fmt.Sprintf("%.0f s", s)
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	default:
		return fmt.Sprintf("%.1f ms", 1000*s)
	}
}

// draw draws the bar.
func (p *progress) draw(done int) {
	const width = 40
	full := width * done / max(p.most, 1)
	left := time.Duration(float64(time.Since(p.began)) / float64(done-p.before) * float64(p.most-done))
	fmt.Fprintf(p.w, "[%s%s] %3d %%, %s left", strings.Repeat("█", full), strings.Repeat("·", width-full),
		100*done/max(p.most, 1), left.Round(time.Second))
	p.hasBar = true
}

// clear takes the bar off the screen.
func (p *progress) clear() {
	if p.hasBar {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.hasBar = false
	}
}

// end leaves the screen as it should be left. It may be called more than once.
func (p *progress) end() {
	p.clear()
}
