package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

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
}

// Files returns the files for an output folder.
//
// Local.
func (r *Run) Files() ([]sddp.File, error) {
	summary, err := r.SummaryJSON()
	if err != nil {
		return nil, err
	}
	var files []sddp.File
	add := func(name string, data []byte) { files = append(files, sddp.File{Name: name, Data: data}) }
	if len(r.Case.Reservoirs) > 0 {
		add("storage.svg", StorageSVG(r.Case, r.Simulation))
	}
	add("summary.json", summary)
	if r.Training != nil {
		add("convergence.csv", ConvergenceCSV(r.Training.Iterations))
		add("convergence.svg", ConvergenceSVG(r.Case, r.Training.Iterations, r.Simulation))
		add(sddp.PolicyFile, r.Policy.Encode())
	}
	return files, nil
}

// ConvergenceCSV returns the iterations as a table with a header line. A number that does not exist,
// such as the interval of a single forward pass, is empty.
//
// Local.
func ConvergenceCSV(its []sddp.Iteration) []byte {
	var b bytes.Buffer
	b.WriteString("iteration,lower_bound,upper_mean,upper_ci95,gap,cuts,solves,lp_seconds,comm_seconds,total_seconds\n")
	number := func(x float64) string {
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return ""
		}
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	for _, it := range its {
		fmt.Fprintf(&b, "%d,%s,%s,%s,%s,%d,%d,%.6f,%.6f,%.6f\n", it.Number, number(it.LowerBound),
			number(it.Upper.Mean), number(it.Upper.CI95), number(it.Gap), it.Cuts, it.Solves,
			it.LP.Seconds(), it.Comm.Seconds(), it.Total.Seconds())
	}
	return b.Bytes()
}

// Result is the JSON object that the command prints on the last line.
type Result struct {
	LowerBound float64 `json:"lower_bound"`
	UpperMean  float64 `json:"upper_mean"`
	UpperCI95  float64 `json:"upper_ci95"`
	UpperCVaR  float64 `json:"upper_cvar"`
	Iterations int     `json:"iterations"`
	Cuts       int     `json:"cuts"`
	CutsSHA256 string  `json:"cuts_sha256"`
	Ranks      int     `json:"ranks"`
	Seconds    float64 `json:"seconds"`
}

// Result returns the result of a run. The upper bound is that of the simulation.
//
// Local.
func (r *Run) Result() Result {
	return Result{
		LowerBound: r.Policy.LowerBound,
		UpperMean:  r.Simulation.Cost.Mean,
		UpperCI95:  r.Simulation.Cost.CI95,
		UpperCVaR:  r.Simulation.CVaR(r.tail()),
		Iterations: r.Policy.Iterations,
		Cuts:       r.Policy.Pool.Total(),
		CutsSHA256: r.Policy.Pool.SHA256(),
		Ranks:      r.Ranks,
		Seconds:    math.Round(1000*r.Seconds) / 1000,
	}
}

// summaryJSON is the layout of summary.json, which docs/sddp.md describes.
type summaryJSON struct {
	Format     string         `json:"format"`
	Version    int            `json:"version"`
	Case       string         `json:"case"`
	CaseSHA256 string         `json:"case_sha256"`
	Currency   string         `json:"currency"`
	Seed       uint64         `json:"seed,string"`
	Openings   int            `json:"openings"`
	Passes     int            `json:"passes"`
	Stopped    string         `json:"stopped,omitempty"`
	Backend    string         `json:"backend"`
	Threads    int            `json:"threads"` // of each rank
	Scenarios  int            `json:"scenarios"`
	Outside    bool           `json:"out_of_sample"`
	CVaRLambda float64        `json:"cvar_lambda"` // of the training; 0 for the expectation
	CVaRAlpha  float64        `json:"cvar_alpha"`  // of the training, or of upper_cvar only
	CostStd    float64        `json:"cost_std"`
	Quantiles  []costQuantile `json:"cost_quantiles"`
	LP         float64        `json:"lp_seconds,omitempty"`
	Comm       float64        `json:"comm_seconds,omitempty"`
	Result                    // flat
	Stages     []stageSummary `json:"stages"`
}

// costQuantile is a quantile of the cost of the whole horizon.
type costQuantile struct {
	Quantile float64 `json:"quantile"`
	Cost     float64 `json:"cost"`
}

// costQuantiles are the quantiles of the cost that are reported.
var costQuantiles = []float64{0.05, 0.25, 0.5, 0.75, 0.95}

// tail returns the share of the scenarios whose mean cost is reported as CVaR: that of the training, or 5 %.
func (r *Run) tail() float64 {
	if r.Policy.Risk.Neutral() {
		return 0.05
	}
	return r.Policy.Risk.Alpha
}

// stageSummary is a stage in summary.json.
type stageSummary struct {
	Stage        int                `json:"stage"`
	Period       string             `json:"period"`
	Cost         float64            `json:"cost"`
	DeficitShare float64            `json:"deficit_probability"`
	Buses        []busSummary       `json:"buses"`
	Reservoirs   []reservoirSummary `json:"reservoirs"`
	Lines        []lineSummary      `json:"lines"`
}

type busSummary struct {
	Bus          string  `json:"bus"`
	Load         float64 `json:"load_mw"`
	Hydro        float64 `json:"hydro_mw"`
	Thermal      float64 `json:"thermal_mw"`
	Deficit      float64 `json:"deficit_mw"`
	NetImport    float64 `json:"net_import_mw"`
	MarginalCost float64 `json:"marginal_cost_per_mwh"`
}

type reservoirSummary struct {
	Reservoir string  `json:"reservoir"`
	Inflow    float64 `json:"inflow"`
	Storage   float64 `json:"end_storage"`
	P10       float64 `json:"end_storage_p10"`
	P50       float64 `json:"end_storage_p50"`
	P90       float64 `json:"end_storage_p90"`
	Spill     float64 `json:"spill"`
}

type lineSummary struct {
	From string  `json:"from"`
	To   string  `json:"to"`
	Flow float64 `json:"flow_mw"`
}

// SummaryJSON returns the text of summary.json.
//
// Local.
func (r *Run) SummaryJSON() ([]byte, error) {
	c, sim := r.Case, r.Simulation
	out := summaryJSON{
		Format: "cohort-sddp-summary", Version: 1,
		Case: c.Name, CaseSHA256: c.SHA256(), Currency: c.Currency,
		Seed: r.Policy.Seed, Openings: r.Policy.Openings, Passes: r.Policy.Passes,
		Backend: r.Backend, Threads: max(r.Threads, 1), Scenarios: sim.Cost.Samples, Outside: sim.Outside, CostStd: sim.Cost.Std,
		CVaRLambda: r.Policy.Risk.Lambda, CVaRAlpha: r.tail(), Result: r.Result(),
	}
	for _, q := range costQuantiles {
		out.Quantiles = append(out.Quantiles, costQuantile{q, sim.Quantile(q)})
	}
	if r.Training != nil {
		out.Stopped = r.Training.Stopped
		out.LP, out.Comm = r.Training.LP.Seconds(), r.Training.Comm.Seconds()
	}
	for t, st := range sim.Stages {
		s := stageSummary{Stage: t + 1, Period: c.StageName(t), Cost: st.Cost, DeficitShare: st.DeficitShare,
			Lines: []lineSummary{}}
		for b := range c.Buses {
			s.Buses = append(s.Buses, busOf(c, st, b))
		}
		for i, res := range c.Reservoirs {
			band := st.StorageBand[i]
			s.Reservoirs = append(s.Reservoirs, reservoirSummary{res.Name, st.Inflow[i], st.Storage[i], band[0], band[1], band[2], st.Spill[i]})
		}
		for i, l := range c.Lines {
			s.Lines = append(s.Lines, lineSummary{c.Buses[l.From].Name, c.Buses[l.To].Name, st.Flow[i]})
		}
		out.Stages = append(out.Stages, s)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// busOf returns a bus in a stage.
func busOf(c *sddp.Case, st sddp.StageResult, b int) busSummary {
	return busSummary{
		Bus: c.Buses[b].Name, Load: st.Load[b], Hydro: st.Hydro[b], Thermal: st.Thermal[b],
		Deficit: st.Deficit[b], NetImport: st.NetImport(c, b), MarginalCost: st.MarginalCost[b],
	}
}

// Summary returns the result as readable text.
//
// Local.
func (r *Run) Summary() string {
	var b strings.Builder
	c, sim := r.Case, r.Simulation
	unit, scale := c.MoneyUnit(sim.Cost.Mean)
	kind := "inflows of the training"
	if sim.Outside {
		kind = "new inflows"
	}
	fmt.Fprintf(&b, "%s: %d stages, %d scenarios with %s; costs in %s\n\n", c.Name, c.Stages, sim.Cost.Samples, kind, unit)
	if r.Policy.Risk.Neutral() {
		fmt.Fprintf(&b, "  lower bound    %.4f: no policy is expected to cost less\n", r.Policy.LowerBound/scale)
	} else {
		fmt.Fprintf(&b, "  lower bound    %.4f: no policy has a smaller risk, which is %v, nested over the stages\n", r.Policy.LowerBound/scale, r.Policy.Risk)
	}
	fmt.Fprintf(&b, "  expected cost  %.4f ± %.4f (95 %% interval of the mean); standard deviation %.4f\n",
		sim.Cost.Mean/scale, sim.Cost.CI95/scale, sim.Cost.Std/scale)
	fmt.Fprintf(&b, "  CVaR           %.4f: mean of the costliest %g %% of the scenarios\n", sim.CVaR(r.tail())/scale, 100*r.tail())
	var quantiles []string
	for _, q := range costQuantiles {
		quantiles = append(quantiles, fmt.Sprintf("%.4f (%g %%)", sim.Quantile(q)/scale, 100*q))
	}
	fmt.Fprintf(&b, "  quantiles      %s\n", strings.Join(quantiles, ", "))
	if r.Policy.Risk.Neutral() {
		fmt.Fprintf(&b, "  gap            %.2f %%: upper end of the interval above the lower bound\n", 100*sim.Cost.Gap(r.Policy.LowerBound))
	} else {
		b.WriteString("  gap            unknown: the costs of scenarios do not estimate the nested risk\n")
	}
	fmt.Fprintf(&b, "  policy         %d cuts from %d iterations of %d forward passes; %d openings, seed %d\n",
		r.Policy.Pool.Total(), r.Policy.Iterations, r.Policy.Passes, r.Policy.Openings, r.Policy.Seed)
	if t := r.Training; t != nil {
		on := plural(r.Ranks, "rank")
		if r.Threads > 1 {
			on += fmt.Sprintf(" × %d threads", r.Threads)
		}
		fmt.Fprintf(&b, "  time           %.1f s on %s (%s); training %.1f s, of which each rank spent %.1f s in linear programs and %.1f s in communication\n",
			r.Seconds, on, r.Backend, t.Elapsed.Seconds(), t.LP.Seconds(), t.Comm.Seconds())
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

// table returns a writer that aligns columns to the right.
func table(b *strings.Builder) *tabwriter.Writer {
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// systemTable writes the sums over all buses.
func (r *Run) systemTable(b *strings.Builder, unit string, scale float64) {
	c := r.Case
	fmt.Fprintf(b, "\nSystem, means of the scenarios: cost in %s, power in MW, storage at the end of the stage in %s\n", unit, c.StorageUnit())
	w := table(b)
	fmt.Fprintln(w, "stage\tperiod\tcost\tload\thydro\tthermal\tdeficit\tdeficit risk\tspill\tstorage\tof capacity\t")
	capacity := 0.0
	for _, res := range c.Reservoirs {
		capacity += res.MaxStorage
	}
	for t, st := range r.Simulation.Stages {
		fmt.Fprintf(w, "%d\t%s\t%.4f\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%.0f\t%.0f\t%s\t\n", t+1, c.StageName(t), st.Cost/scale, total(st.Load),
			total(st.Hydro), total(st.Thermal), total(st.Deficit), percent(st.DeficitShare, 1), total(st.Spill),
			total(st.Storage), percent(total(st.Storage), capacity))
	}
	w.Flush()
}

// busTable writes the figures of a bus.
func (r *Run) busTable(b *strings.Builder, bus int) {
	c := r.Case
	fmt.Fprintf(b, "\n%s, means of the scenarios: power in MW, storage at the end of the stage in %s, marginal cost in %s/MWh\n", c.Buses[bus].Name, c.StorageUnit(), c.Currency)
	w := table(b)
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
			zeroed(s.NetImport), s.MarginalCost, storage, percent(storage, capacity))
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

// percent returns a part of a whole in percent, and a dash if the whole is 0.
func percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// plural returns a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
