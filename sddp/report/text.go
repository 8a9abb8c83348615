package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/sddp"
	"github.com/cohort-hpc/cohort/sddp/internal/text"
)

// Summary returns the result as readable text.
//
// Not collective.
func (r *Run) Summary() string {
	var b strings.Builder
	c, sim := r.Case, r.Simulation
	unit, scale := c.MoneyUnit(sim.Cost.Mean)
	kind := map[sddp.Sampling]string{
		sddp.InSample: "inflows of the training", sddp.OutOfSample: "new inflows", sddp.Historical: "inflows of the record", sddp.Given: "given inflows",
	}[sim.Sampling]
	fmt.Fprintf(&b, "%s: %d stages, %d scenarios with %s; costs in %s\n\n", c.Name, c.Stages, sim.Cost.Samples, kind, unit)
	switch {
	case r.Other:
		fmt.Fprintf(&b, "  lower bound    unknown: the policy is that of another case\n")
	case r.Policy.Risk.Neutral():
		fmt.Fprintf(&b, "  lower bound    %.4f: no policy is expected to cost less\n", r.Policy.LowerBound/scale)
	default:
		fmt.Fprintf(&b, "  lower bound    %.4f: no policy has a smaller risk, which is %v, nested over the stages\n", r.Policy.LowerBound/scale, r.Policy.Risk)
	}
	fmt.Fprintf(&b, "  expected cost  %.4f ± %.4f (95 %% interval of the mean); standard deviation %.4f\n",
		sim.Cost.Mean/scale, sim.Cost.CI95/scale, sim.Cost.Std/scale)
	fmt.Fprintf(&b, "  made of        %s\n", costsText(sim.Costs(), sim.Cost.Mean, scale))
	fmt.Fprintf(&b, "  CVaR           %.4f: mean of the costliest %g %% of the scenarios\n", sim.CVaR(r.tail())/scale, 100*r.tail())
	var quantiles []string
	for _, q := range costQuantiles {
		quantiles = append(quantiles, fmt.Sprintf("%.4f (%g %%)", sim.Quantile(q)/scale, 100*q))
	}
	fmt.Fprintf(&b, "  quantiles      %s\n", strings.Join(quantiles, ", "))
	gap, note := r.gap()
	fmt.Fprintf(&b, "  gap            %s: %s\n", gap, note)
	fmt.Fprintf(&b, "  policy         %d cuts from %d iterations of %d forward passes; %d openings, seed %d%s\n",
		r.Policy.Pool.Total(), r.Policy.Iterations, r.Policy.Passes, r.Policy.Openings, r.Policy.Seed, r.kindOfCuts())
	if t := r.Training; t != nil {
		fmt.Fprintf(&b, "  time           %.1f s on %s (%s); training %.1f s, of which each rank spent %.1f s in linear programs and %.1f s in communication\n",
			r.Seconds, r.on(), r.Backend, t.Elapsed.Seconds(), t.LP.Seconds(), t.Comm.Seconds())
		fmt.Fprintf(&b, "  stopped        because %s\n", t.Stopped)
	}
	r.systemTable(&b, unit, scale)
	for i := range c.Buses {
		if r.Buses && !isTransit(c, i) {
			r.busTable(&b, i)
		}
	}
	return b.String()
}

// costsText names the parts of the mean cost that are not 0, the largest first, with their share.
func costsText(parts sddp.CostParts, mean, scale float64) string {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(parts[j], parts[i]) })
	var texts []string
	for _, i := range order {
		if parts[i] > 0 {
			texts = append(texts, fmt.Sprintf("%s %.4f (%s)", sddp.CostPartNames[i], parts[i]/scale, text.Percent(parts[i], mean)))
		}
	}
	if texts == nil {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}

// kindOfCuts says that the policy has a cut for each opening; it is empty if cuts are means.
func (r *Run) kindOfCuts() string {
	if r.Policy.MultiCut {
		return "; a cut for each opening"
	}
	return ""
}

// on returns the ranks and threads of the run.
func (r *Run) on() string {
	on := text.Plural(r.Ranks, "rank")
	if r.Threads > 1 {
		on += fmt.Sprintf(" × %d threads", r.Threads)
	}
	return on
}

// isTransit reports whether a bus only connects lines.
func isTransit(c *sddp.Case, bus int) bool {
	if c.Buses[bus].LoadMW != nil {
		return false
	}
	for _, g := range c.Thermals {
		if g.Bus == bus {
			return false
		}
	}
	for _, r := range c.Reservoirs {
		if r.Bus == bus {
			return false
		}
	}
	return true
}

// systemTable writes the sums over all buses.
func (r *Run) systemTable(b *strings.Builder, unit string, scale float64) {
	c := r.Case
	fmt.Fprintf(b, "\nSystem, means of the scenarios: cost in %s, power in MW, storage at the end of the stage in %s\n", unit, c.StorageUnit())
	w := text.Table(b)
	fmt.Fprintln(w, "stage\tperiod\tcost\tload\thydro\tthermal\tdeficit\tdeficit risk\tspill\tstorage\tof capacity\t")
	capacity := 0.0
	for _, res := range c.Reservoirs {
		capacity += res.MaxStorage
	}
	for t, st := range r.Simulation.Stages {
		fmt.Fprintf(w, "%d\t%s\t%.4f\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%.0f\t%.0f\t%s\t\n", t+1, c.StageName(t), st.Cost/scale, total(st.Load),
			total(st.Hydro), total(st.Thermal), total(st.Deficit), text.Percent(st.DeficitShare, 1), total(st.Spill),
			total(st.Storage), text.Percent(total(st.Storage), capacity))
	}
	w.Flush()
}

// busTable writes the figures of a bus.
func (r *Run) busTable(b *strings.Builder, bus int) {
	c := r.Case
	fmt.Fprintf(b, "\n%s, means of the scenarios: power in MW, storage at the end of the stage in %s, marginal cost in %s/MWh\n", c.Buses[bus].Name, c.StorageUnit(), c.Currency)
	w := text.Table(b)
	fmt.Fprintln(w, "stage\tperiod\tload\thydro\tthermal\tdeficit\tnet import\tmarginal cost\tstorage\tof capacity\t")
	for t, st := range r.Simulation.Stages {
		s := busOf(c, st, bus)
		storage, capacity := 0.0, 0.0
		for i, res := range c.Reservoirs {
			if res.Bus == bus {
				storage += st.Storage[i]
				capacity += res.MaxStorage
			}
		}
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\t%.2f\t%.0f\t%s\t\n", t+1, c.StageName(t), s.Load, s.Hydro, s.Thermal, s.Deficit,
			zeroed(s.NetImport), s.MarginalCost, storage, text.Percent(storage, capacity))
	}
	w.Flush()
}

// zeroed returns x, or 0 if it would print as -0.
func zeroed(x float64) float64 {
	if math.Abs(x) < 0.5 {
		return 0
	}
	return x
}

// total returns the sum of numbers.
func total(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum
}
