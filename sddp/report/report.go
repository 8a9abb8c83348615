package report

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/sddp"
)

// Run is a training or a simulation with its results.
type Run struct {
	Case       *sddp.Case
	Training   *sddp.Training // nil for a simulation alone
	Policy     *sddp.Policy
	Simulation *sddp.Simulation
	Ranks      int
	Threads    int  // of each rank; 0 counts as 1
	Buses      bool // print a table for each bus in Summary
	Backend    string
	Seconds    float64
	Other      bool // the policy is that of another case, so its lower bound is none of this one

	paths *sheet // see Path
}

// gap returns the gap in percent with its 95 % interval and what it is: an estimate if the training made one, else
// what the simulation says. It is "unknown" if there is no lower bound on the expected cost.
func (r *Run) gap() (value, note string) {
	lower := r.Policy.LowerBound
	switch t := r.Training; {
	case r.Other:
		return "unknown", "it needs a lower bound of this case"
	case !r.Policy.Risk.Neutral():
		return "unknown", "the costs of scenarios do not estimate the nested risk"
	case t != nil && t.Gap.Samples > 0 && lower > 0:
		return fmt.Sprintf("%.2f ± %.2f %%", 100*t.Gap.Mean/lower, 100*t.Gap.CI95/lower), fmt.Sprintf("expected cost above the lower bound, from the errors of the cuts on %d paths", t.Gap.Samples)
	}
	return fmt.Sprintf("%.2f %%", 100*r.Simulation.Cost.Gap(lower)), "upper end of the interval above the lower bound"
}

// Files returns the files for an output folder.
//
// Not collective.
func (r *Run) Files() ([]sddp.File, error) {
	summary, err := r.SummaryJSON()
	if err != nil {
		return nil, err
	}
	files := []sddp.File{
		{Name: "summary.json", Data: summary},
		{Name: "buses.csv", Data: r.busesCSV()},
		{Name: "plants.csv", Data: r.plantsCSV()},
		{Name: "reservoirs.csv", Data: r.reservoirsCSV()},
		{Name: "costs.csv", Data: r.costsCSV()},
		{Name: "scenarios.csv", Data: r.scenariosCSV()},
	}
	if r.Case.Blocks != nil {
		files = append(files, sddp.File{Name: "blocks.csv", Data: r.blocksCSV()})
	}
	if r.Training != nil {
		files = append(files,
			sddp.File{Name: "convergence.csv", Data: r.convergenceCSV()},
			sddp.File{Name: "cuts.csv", Data: r.cutsCSV()},
			sddp.File{Name: sddp.PolicyFile, Data: r.Policy.Encode()})
	}
	return files, nil
}

// figure is a chart of a run, and what it shows.
type figure struct {
	name, heading, caption string
	chart                  *chart
}

// figures returns the charts of a run.
func (r *Run) figures() []figure {
	var all []figure
	if r.Training != nil {
		caption := "The lower bound rises with every iteration. Forward passes simulate the policy so far; their mean cost varies by chance."
		if !r.Policy.Risk.Neutral() {
			caption = "The lower bound is on the nested risk. The cost of forward passes and scenarios is shown for comparison; it does not estimate that risk, so the gap is unknown."
		}
		all = append(all, figure{"convergence", "Convergence", caption, r.convergence()})
	}
	all = append(all,
		figure{"generation", "Generation", "Mean over the scenarios, of the whole system.", r.generation()},
		figure{"marginal", "Marginal cost", "What one more MWh of load costs. The mean may leave the band where few scenarios have a deficit.", r.marginal()},
		figure{"storage", "Storage", "At the end of each stage.", r.storage()},
		figure{"costs", "Cost of the scenarios", "Each scenario is one path of inflows over the whole horizon.", r.costs()})
	// A case may have no water that is stored, or no load.
	return slices.DeleteFunc(all, func(f figure) bool { return len(f.chart.plots) == 0 })
}
