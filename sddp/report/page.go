package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/cohort-hpc/cohort/sddp"
	"github.com/cohort-hpc/cohort/sddp/internal/text"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template needs.
type page struct {
	Title, Description string
	Facts              []fact
	Figures            []pageFigure
	Tables             []pageTable
	Footer             string
}

// fact is a figure of the whole run, and what it means.
type fact struct{ Name, Value, Note string }

// pageFigure is a chart, drawn for a wide and for a narrow screen.
type pageFigure struct {
	ID, Heading, Caption string
	Wide, Narrow         template.HTML
}

// pageTable is a table. Its first column has names.
type pageTable struct {
	Heading, Note string
	Open          bool
	Header        []string
	Rows          [][]string
}

// Page returns the run as one HTML page that needs no other file.
//
// Not collective.
func (r *Run) Page() ([]byte, error) {
	p := page{Title: r.Case.Name, Description: r.Case.Description, Facts: r.facts(), Footer: r.footer()}
	for _, f := range r.figures() {
		p.Figures = append(p.Figures, pageFigure{f.name, f.heading, f.caption, inline(f.chart, wide), inline(f.chart, narrow)})
	}
	p.Tables = append(p.Tables, r.systemPageTable(), r.costPageTable(), r.quantilePageTable())
	if len(r.Case.Reservoirs) > 0 {
		p.Tables = append(p.Tables, r.waterPageTable())
	}
	p.Tables = append(p.Tables, r.plantPageTable())
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return bytes.ReplaceAll(b.Bytes(), []byte(" %"), []byte("\u00a0%")), err // no line begins with %
}

// inline returns a chart as an element of a page.
func inline(c *chart, width vg.Length) template.HTML {
	svg := string(c.svg(width))
	return template.HTML(svg[strings.Index(svg, "<svg"):]) // made here, with escaped names
}

// facts returns the figures of the whole run.
func (r *Run) facts() []fact {
	sim := r.Simulation
	unit, scale := r.Case.MoneyUnit(sim.Cost.Mean)
	money := func(x float64) string { return amount(x/scale) + " " + unit }
	bound, lower := "No policy is expected to cost less.", money(r.Policy.LowerBound)
	gap, note := r.gap()
	if risk := r.Policy.Risk; !risk.Neutral() {
		bound = fmt.Sprintf("No policy has a smaller risk, which is %v, nested over the stages.", risk)
	}
	if r.Other {
		lower, bound = "unknown", "The policy is that of another case."
	}
	short := 0
	for _, s := range sim.Scenarios {
		if s.ShortStages > 0 {
			short++
		}
	}
	return []fact{
		{"Lower bound", lower, bound},
		{"Expected cost", fmt.Sprintf("%s ± %s %s", amount(sim.Cost.Mean/scale), amount(sim.Cost.CI95/scale), unit), fmt.Sprintf("Mean of %d scenarios and its 95 %% interval.", sim.Cost.Samples)},
		{"Gap", gap, strings.ToUpper(note[:1]) + note[1:] + "."},
		{"CVaR", money(sim.CVaR(r.tail())), fmt.Sprintf("Mean cost of the costliest %g %% of the scenarios.", 100*r.tail())},
		{"Deficit risk", text.Percent(float64(short), float64(len(sim.Scenarios))), "Share of the scenarios with a deficit in any stage."},
	}
}

// footer says how the run was made.
func (r *Run) footer() string {
	p := r.Policy
	about := fmt.Sprintf("%d stages. The policy has %d cuts from %d iterations of %d forward passes, with %d openings and seed %d%s (cuts %.12s…).",
		r.Case.Stages, p.Pool.Total(), p.Iterations, p.Passes, p.Openings, p.Seed, r.kindOfCuts(), p.Pool.SHA256())
	if r.Training != nil {
		about += fmt.Sprintf(" The training stopped because %s; it took %.1f s on %s (%s).", r.Training.Stopped, r.Training.Elapsed.Seconds(), r.on(), r.Backend)
	}
	return about
}

// systemPageTable has the means of the whole system by stage.
func (r *Run) systemPageTable() pageTable {
	unit, scale := r.Case.MoneyUnit(r.Simulation.Cost.Mean)
	t := pageTable{Heading: "System by stage", Open: true,
		Note: fmt.Sprintf("Means of the scenarios. Cost in %s, power in MW, spill in %s, storage in %s.",
			unit, r.Case.FlowUnit(), r.Case.StorageUnit()),
		Header: []string{"Stage", "Cost", "Load", "Hydro", "Thermal", "Deficit", "Deficit risk", "Spill", "Storage"}}
	for i, st := range r.Simulation.Stages {
		t.Rows = append(t.Rows, []string{r.stageName(i), amount(st.Cost / scale), whole(total(st.Load)), whole(total(st.Hydro)),
			whole(total(st.Thermal)), fmt.Sprintf("%.1f", total(st.Deficit)), text.Percent(st.DeficitShare, 1), whole(total(st.Spill)), whole(total(st.Storage))})
	}
	return t
}

// costPageTable has the parts of the cost by stage, without those that are 0 in all stages.
func (r *Run) costPageTable() pageTable {
	sim := r.Simulation
	unit, scale := r.Case.MoneyUnit(sim.Cost.Mean)
	t := pageTable{Heading: "Cost by stage", Note: fmt.Sprintf("Means of the scenarios, in %s, not discounted. min_storage, min_outflow and negative_inflow are penalties.", unit),
		Header: []string{"Stage"}, Rows: make([][]string, len(sim.Stages))}
	for i := range sim.Stages {
		t.Rows[i] = []string{r.stageName(i)}
	}
	for part, sum := range sim.Costs() {
		if sum == 0 {
			continue
		}
		t.Header = append(t.Header, sddp.CostPartNames[part])
		for i, st := range sim.Stages {
			t.Rows[i] = append(t.Rows[i], amount(st.Costs[part]/scale))
		}
	}
	return t
}

// quantilePageTable has the quantiles of the cost.
func (r *Run) quantilePageTable() pageTable {
	unit, scale := r.Case.MoneyUnit(r.Simulation.Cost.Mean)
	t := pageTable{Heading: "Cost of the scenarios", Note: "In " + unit + ". A quantile of 5 % means that 5 % of the scenarios cost less.", Header: []string{"Quantile", "Cost"}}
	for _, q := range costQuantiles {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%g %%", 100*q), amount(r.Simulation.Quantile(q) / scale)})
	}
	return t
}

// waterPageTable has the water values by stage and reservoir.
func (r *Run) waterPageTable() pageTable {
	t := pageTable{Heading: "Water values", Header: []string{"Stage"},
		Note: fmt.Sprintf("What a reservoir's water for one more MWh in its own plants would save, in %s/MWh, mean of the scenarios.", r.Case.Currency)}
	for _, res := range r.Case.Reservoirs {
		t.Header = append(t.Header, res.Name)
	}
	for i, st := range r.Simulation.Stages {
		row := []string{r.stageName(i)}
		for _, v := range st.WaterValue {
			row = append(row, fmt.Sprintf("%.1f", v))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// plantPageTable has the mean output of every plant by stage.
func (r *Run) plantPageTable() pageTable {
	c := r.Case
	t := pageTable{Heading: "Generation by plant", Note: "Means of the scenarios, in MW. The hydro plants of a reservoir have its name.", Header: []string{"Plant", "Bus"}}
	for i := range r.Simulation.Stages {
		t.Header = append(t.Header, r.stageName(i))
	}
	row := func(name string, bus int, mw func(stage int) float64) {
		row := []string{name, c.Buses[bus].Name}
		for i := range r.Simulation.Stages {
			row = append(row, whole(mw(i)))
		}
		t.Rows = append(t.Rows, row)
	}
	for i, res := range c.Reservoirs {
		row(res.Name, res.Bus, func(t int) float64 { return r.Simulation.Stages[t].Generation[i] })
	}
	for i, g := range c.Thermals {
		row(g.Name, g.Bus, func(t int) float64 { return r.Simulation.Stages[t].ThermalPlant[i] })
	}
	return t
}

// stageName returns the number and the name of a stage.
func (r *Run) stageName(t int) string { return fmt.Sprintf("%d %s", t+1, r.Case.StageName(t)) }

// amount returns a number with four digits or more.
func amount(x float64) string {
	if math.Abs(x) >= 999.95 {
		return whole(x)
	}
	return fmt.Sprintf("%#.4g", x)
}

// whole returns a number without decimals.
func whole(x float64) string { return grouped(zeroed(math.Round(x))) }
