package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/cohort-hpc/cohort/sddp"
)

// progress prints a line for each iteration on rank 0, and on a terminal a bar below the lines.
type progress struct {
	first    func() bool // whether this rank prints
	quiet    bool        // print warnings only
	f        *os.File
	c        *sddp.Case
	o        *options
	unit     string  // of costs
	scale    float64 // one unit in the currency of the case
	lines    int
	before   int // iterations that this rank has not printed
	terminal bool
	bar      *progressbar.ProgressBar // nil while there is none
}

// newProgress returns the progress of a rank, which prints nothing before begin.
func newProgress(first func() bool, f *os.File, quiet bool) *progress {
	return &progress{first: first, quiet: quiet, f: f, terminal: term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"}
}

// begin sets the training that iterations belong to.
func (p *progress) begin(c *sddp.Case, o *options) { p.c, p.o = c, o }

// head prints what the columns mean, before the first line.
func (p *progress) head(it sddp.Iteration) {
	p.unit, p.scale = p.c.MoneyUnit(it.Upper.Mean)
	if it.Number > 1 && p.before == 0 {
		p.before = it.Number - 1
		fmt.Fprintf(p.f, "sddp: resuming after iteration %d\n", p.before)
	}
	bound, gap := "no policy is expected to cost less", "from the lower bound to the upper end of the forward cost's 95 % interval; --gap tests more scenarios"
	if risk := p.o.risk(); !risk.Neutral() {
		bound = fmt.Sprintf("no policy has a smaller risk, which is %v, nested over the stages", risk)
		gap = "unknown: the forward cost does not estimate the nested risk"
	}
	fmt.Fprintf(p.f, `sddp: training %s with %d forward passes in each iteration; costs in %s
  lower bound   %s
  forward cost  mean of the passes, which simulate the policy so far
  gap           %s
  LP, comm      time in linear programs and in communication, mean of the ranks
`, p.c.Name, p.o.passes, p.unit, bound, gap)
	if p.terminal {
		p.bar = progressbar.NewOptions(p.o.iterations, progressbar.OptionSetWriter(p.f), progressbar.OptionSetWidth(40),
			progressbar.OptionShowCount(), progressbar.OptionSetDescription("iterations"), progressbar.OptionClearOnFinish())
	}
}

// iteration prints a line.
func (p *progress) iteration(it sddp.Iteration) {
	if p.quiet || !p.first() {
		p.before = it.Number // this rank may become the first one
		return
	}
	if p.unit == "" {
		p.head(it)
	}
	p.clear()
	if p.lines%25 == 0 {
		fmt.Fprintf(p.f, "%9s  %12s  %12s  %10s  %9s  %7s  %8s  %8s\n",
			"iteration", "lower bound", "forward cost", "± 95 %", "gap", "cuts", "LP", "comm")
	}
	p.lines++
	interval, gap := "-", "-"
	if !math.IsInf(it.Upper.CI95, 0) {
		interval = fmt.Sprintf("%.4f", it.Upper.CI95/p.scale)
	}
	if !math.IsInf(it.Gap, 0) {
		gap = fmt.Sprintf("%.2f %%", 100*it.Gap)
	}
	fmt.Fprintf(p.f, "%4d/%-4d  %12.5f  %12.4f  %10s  %9s  %7d  %8s  %8s\n",
		it.Number, p.o.iterations, it.LowerBound/p.scale, it.Upper.Mean/p.scale, interval, gap, it.Cuts, short(it.LP), short(it.Comm))
	if p.bar != nil {
		_ = p.bar.Set(it.Number) // a bar that cannot be drawn is no failure
	}
}

// warn prints a problem that does not end the training.
func (p *progress) warn(err error) {
	if p.first() {
		p.clear()
		fmt.Fprintf(p.f, "sddp: warning: %v\n", err)
	}
}

// short formats a time with three digits.
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

// clear takes the bar off the screen.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// end removes the bar. It may be called more than once.
func (p *progress) end() {
	p.clear()
	p.bar = nil
}
