package report

import (
	"encoding/json"
	"math"

	"github.com/cohort-hpc/cohort/sddp"
)

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
// Not collective.
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

// summaryJSON is the layout of summary.json, which sddp/README.md describes.
type summaryJSON struct {
	Format     string                `json:"format"`
	Version    int                   `json:"version"`
	Case       string                `json:"case"`
	CaseSHA256 string                `json:"case_sha256"`
	Currency   string                `json:"currency"`
	Seed       uint64                `json:"seed,string"`
	Openings   int                   `json:"openings"`
	Passes     int                   `json:"passes"`
	Stopped    string                `json:"stopped,omitempty"`
	Backend    string                `json:"backend"`
	Threads    int                   `json:"threads"` // of each rank
	Scenarios  int                   `json:"scenarios"`
	Sampling   sddp.Sampling         `json:"sampling"`
	CVaRLambda float64               `json:"cvar_lambda"` // of the training; 0 for the expectation
	CVaRAlpha  float64               `json:"cvar_alpha"`  // of the training, or of upper_cvar only
	CostStd    float64               `json:"cost_std"`
	Costs      sddp.CostParts        `json:"costs"` // parts of upper_mean
	Quantiles  []costQuantile        `json:"cost_quantiles"`
	LP         float64               `json:"lp_seconds,omitempty"`
	Comm       float64               `json:"comm_seconds,omitempty"`
	Result                           // flat
	Stages     []stageSummary        `json:"stages"`
	ByScenario []sddp.ScenarioResult `json:"by_scenario"`
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
	Costs        sddp.CostParts     `json:"costs"`
	DeficitShare float64            `json:"deficit_probability"`
	Buses        []busSummary       `json:"buses"`
	Reservoirs   []reservoirSummary `json:"reservoirs"`
	Thermals     []thermalSummary   `json:"thermals"`
	Lines        []lineSummary      `json:"lines"`
}

type busSummary struct {
	Bus          string    `json:"bus"`
	Load         float64   `json:"load_mw"`
	Hydro        float64   `json:"hydro_mw"`
	Thermal      float64   `json:"thermal_mw"`
	Deficit      float64   `json:"deficit_mw"`
	DeficitRisk  float64   `json:"deficit_probability"`
	NetImport    float64   `json:"net_import_mw"`
	MarginalCost float64   `json:"marginal_cost_per_mwh"`
	MarginalBand sddp.Band `json:"marginal_cost_p10_p50_p90"`
}

type reservoirSummary struct {
	Reservoir   string    `json:"reservoir"`
	Inflow      float64   `json:"inflow"`
	Generation  float64   `json:"generation_mw"`
	Spill       float64   `json:"spill"`
	Storage     float64   `json:"end_storage"`
	StorageBand sddp.Band `json:"end_storage_p10_p50_p90"`
	WaterValue  float64   `json:"water_value_per_mwh"`
	WaterBand   sddp.Band `json:"water_value_p10_p50_p90"`

	ShortStorage float64 `json:"min_storage_missing"`
	ShortOutflow float64 `json:"min_outflow_missing"`
	ShortInflow  float64 `json:"negative_inflow_missing"`
}

type thermalSummary struct {
	Plant      string  `json:"plant"`
	Generation float64 `json:"generation_mw"`
}

type lineSummary struct {
	From string  `json:"from"`
	To   string  `json:"to"`
	Flow float64 `json:"flow_mw"`
}

// SummaryJSON returns the text of summary.json.
//
// Not collective.
func (r *Run) SummaryJSON() ([]byte, error) {
	c, sim := r.Case, r.Simulation
	out := summaryJSON{
		Format: "cohort-sddp-summary", Version: 2, ByScenario: sim.Scenarios,
		Case: c.Name, CaseSHA256: c.SHA256(), Currency: c.Currency,
		Seed: r.Policy.Seed, Openings: r.Policy.Openings, Passes: r.Policy.Passes,
		Backend: r.Backend, Threads: max(r.Threads, 1), Scenarios: sim.Cost.Samples, Sampling: sim.Sampling, CostStd: sim.Cost.Std, Costs: sim.Costs(),
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
		s := stageSummary{Stage: t + 1, Period: c.StageName(t), Cost: st.Cost, Costs: st.Costs, DeficitShare: st.DeficitShare,
			Reservoirs: []reservoirSummary{}, Thermals: []thermalSummary{}, Lines: []lineSummary{}}
		for b := range c.Buses {
			s.Buses = append(s.Buses, busOf(c, st, b))
		}
		for i, res := range c.Reservoirs {
			s.Reservoirs = append(s.Reservoirs, reservoirSummary{res.Name, st.Inflow[i], st.Generation[i], st.Spill[i],
				st.Storage[i], st.StorageBand[i], st.WaterValue[i], st.WaterBand[i], st.ShortStorage[i], st.ShortOutflow[i], st.ShortInflow[i]})
		}
		for i, g := range c.Thermals {
			s.Thermals = append(s.Thermals, thermalSummary{g.Name, st.ThermalPlant[i]})
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
		Deficit: st.Deficit[b], DeficitRisk: st.DeficitRisk[b], NetImport: st.NetImport(c, b),
		MarginalCost: st.MarginalCost[b], MarginalBand: st.MarginalBand[b],
	}
}
