package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cohort-hpc/cohort/sddp"
)

// sheet is a CSV table being written.
type sheet struct {
	b bytes.Buffer
	w *csv.Writer
}

// newSheet begins a table with its header line.
func newSheet(header ...string) *sheet {
	s := &sheet{}
	s.w = csv.NewWriter(&s.b)
	s.row(header)
	return s
}

// row adds a line.
func (s *sheet) row(fields []string) {
	if err := s.w.Write(fields); err != nil {
		panic(err) // a bytes.Buffer accepts everything
	}
}

// add adds a line of texts, counts and numbers. A number that does not exist is empty.
func (s *sheet) add(values ...any) {
	var fields []string
	for _, v := range values {
		switch v := v.(type) {
		case float64:
			fields = append(fields, number(v))
		case sddp.Band:
			fields = append(fields, number(v[0]), number(v[1]), number(v[2]))
		case sddp.CostParts:
			for _, x := range v {
				fields = append(fields, number(x))
			}
		default:
			fields = append(fields, fmt.Sprint(v))
		}
	}
	s.row(fields)
}

// number returns the shortest text that reads back as x, and nothing for an infinity or NaN.
func number(x float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// text returns the table.
func (s *sheet) text() []byte {
	s.w.Flush()
	return s.b.Bytes()
}

// convergenceCSV has a line for each iteration.
func (r *Run) convergenceCSV() []byte {
	s := newSheet("iteration", "lower_bound", "upper_mean", "upper_ci95", "gap", "cuts", "solves", "lp_seconds", "comm_seconds", "total_seconds")
	for _, it := range r.Training.Iterations {
		s.add(it.Number, it.LowerBound, it.Upper.Mean, it.Upper.CI95, it.Gap, it.Cuts, it.Solves, it.LP.Seconds(), it.Comm.Seconds(), it.Total.Seconds())
	}
	return s.text()
}

// busesCSV has a line for each stage and bus.
func (r *Run) busesCSV() []byte {
	s := newSheet("stage", "period", "bus", "load_mw", "hydro_mw", "thermal_mw", "deficit_mw", "deficit_probability", "net_import_mw",
		"marginal_cost_per_mwh", "marginal_cost_p10", "marginal_cost_p50", "marginal_cost_p90")
	for t, st := range r.Simulation.Stages {
		for b, bus := range r.Case.Buses {
			s.add(t+1, r.Case.StageName(t), bus.Name, st.Load[b], st.Hydro[b], st.Thermal[b], st.Deficit[b], st.DeficitRisk[b],
				st.NetImport(r.Case, b), st.MarginalCost[b], st.MarginalBand[b])
		}
	}
	return s.text()
}

// plantsCSV has a line for each stage and plant; a reservoir stands for its hydro plants.
func (r *Run) plantsCSV() []byte {
	c := r.Case
	s := newSheet("stage", "period", "kind", "plant", "bus", "generation_mw")
	for t, st := range r.Simulation.Stages {
		for i, res := range c.Reservoirs {
			s.add(t+1, c.StageName(t), "hydro", res.Name, c.Buses[res.Bus].Name, st.Generation[i])
		}
		for i, g := range c.Thermals {
			s.add(t+1, c.StageName(t), "thermal", g.Name, c.Buses[g.Bus].Name, st.ThermalPlant[i])
		}
	}
	return s.text()
}

// reservoirsCSV has a line for each stage and reservoir.
func (r *Run) reservoirsCSV() []byte {
	s := newSheet("stage", "period", "reservoir", "bus", "inflow", "generation_mw", "spill", "end_storage", "end_storage_p10", "end_storage_p50",
		"end_storage_p90", "water_value_per_mwh", "water_value_p10", "water_value_p50", "water_value_p90",
		"min_storage_missing", "min_outflow_missing", "negative_inflow_missing")
	for t, st := range r.Simulation.Stages {
		for i, res := range r.Case.Reservoirs {
			s.add(t+1, r.Case.StageName(t), res.Name, r.Case.Buses[res.Bus].Name, st.Inflow[i], st.Generation[i], st.Spill[i],
				st.Storage[i], st.StorageBand[i], st.WaterValue[i], st.WaterBand[i], st.ShortStorage[i], st.ShortOutflow[i], st.ShortInflow[i])
		}
	}
	return s.text()
}

// scenariosCSV has a line for each scenario.
func (r *Run) scenariosCSV() []byte {
	s := newSheet(append([]string{"scenario", "cost", "load_mwh", "hydro_mwh", "thermal_mwh", "deficit_mwh", "spill", "stages_with_deficit"}, costColumns()...)...)
	for i, one := range r.Simulation.Scenarios {
		s.add(i+1, one.Cost, one.Load, one.Hydro, one.Thermal, one.Deficit, one.Spill, one.ShortStages, one.Costs)
	}
	return s.text()
}

// Path adds the stages of a scenario to the table of Paths. It is the Seen of [sddp.SimulateOptions].
//
// Not collective.
func (r *Run) Path(scenario int, stages []sddp.StageResult) {
	c := r.Case
	if scenario == 0 { // also when a simulation begins again
		head := append([]string{"scenario", "stage", "period", "cost"}, costColumns()...)
		for _, b := range c.Buses {
			head = append(head, b.Name+" load_mw", b.Name+" deficit_mw", b.Name+" marginal_cost_per_mwh")
		}
		for _, res := range c.Reservoirs {
			for _, figure := range []string{"inflow", "generation_mw", "spill", "end_storage", "water_value_per_mwh", "min_storage_missing", "min_outflow_missing", "negative_inflow_missing"} {
				head = append(head, res.Name+" "+figure)
			}
		}
		for _, g := range c.Thermals {
			head = append(head, g.Name+" generation_mw")
		}
		for _, l := range c.Lines {
			head = append(head, c.Buses[l.From].Name+" to "+c.Buses[l.To].Name+" flow_mw")
		}
		r.paths = newSheet(head...)
	}
	for t, st := range stages {
		values := []any{scenario + 1, t + 1, c.StageName(t), st.Cost, st.Costs}
		for b := range c.Buses {
			values = append(values, st.Load[b], st.Deficit[b], st.MarginalCost[b])
		}
		for i := range c.Reservoirs {
			values = append(values, st.Inflow[i], st.Generation[i], st.Spill[i], st.Storage[i], st.WaterValue[i], st.ShortStorage[i], st.ShortOutflow[i], st.ShortInflow[i])
		}
		for _, x := range slices.Concat(st.ThermalPlant, st.Flow) {
			values = append(values, x)
		}
		r.paths.add(values...)
	}
}

// Paths returns a CSV table with a line for each scenario and stage, which Path has collected; nil if it has none.
//
// Not collective.
func (r *Run) Paths() ([]byte, error) {
	if r.paths == nil {
		return nil, nil
	}
	return r.paths.text(), nil
}

// blocksCSV has a line for each figure of each load block of each stage.
func (r *Run) blocksCSV() []byte {
	c := r.Case
	s := newSheet("stage", "period", "block", "kind", "name", "mean")
	for t, st := range r.Simulation.Stages {
		for k, b := range st.Blocks {
			add := func(kind string, figures []float64, name func(i int) string) {
				for i, x := range figures {
					s.add(t+1, c.StageName(t), c.Blocks[k].Name, kind, name(i), x)
				}
			}
			bus := func(i int) string { return c.Buses[i].Name }
			add("load_mw", b.Load, bus)
			add("deficit_mw", b.Deficit, bus)
			add("marginal_cost_per_mwh", b.MarginalCost, bus)
			add("hydro_mw", b.Generation, func(i int) string { return c.Reservoirs[i].Name })
			add("thermal_mw", b.ThermalPlant, func(i int) string { return c.Thermals[i].Name })
			add("flow_mw", b.Flow, func(i int) string { return bus(c.Lines[i].From) + " to " + bus(c.Lines[i].To) })
		}
	}
	return s.text()
}

// costsCSV has a line for each stage.
func (r *Run) costsCSV() []byte {
	s := newSheet(append([]string{"stage", "period", "cost"}, costColumns()...)...)
	for t, st := range r.Simulation.Stages {
		s.add(t+1, r.Case.StageName(t), st.Cost, st.Costs)
	}
	return s.text()
}

// costColumns returns the names of the columns of the parts of a cost.
func costColumns() (names []string) {
	for _, part := range sddp.CostPartNames {
		names = append(names, "cost_"+part)
	}
	return names
}

// cutsCSV has a line for each cut: a stage that ends with storage v leaves a cost of at least alpha plus the
// sum of slope times v over the reservoirs, and with a PAR of slope times the last inflows. With multi-cut that is
// the cost given an opening of the next stage.
func (r *Run) cutsCSV() []byte {
	c, pool := r.Case, r.Policy.Pool
	head := []string{"stage", "period", "cut"}
	if r.Policy.MultiCut {
		head = append(head, "opening")
	}
	s := newSheet(append(head, c.CutColumns()...)...)
	for t := range pool.Stages() {
		first, end := pool.Lists(t)
		for list := first; list < end; list++ {
			for i := range pool.Len(list) {
				alpha, beta := pool.Cut(list, i)
				values := []any{t + 1, c.StageName(t), i + 1}
				if r.Policy.MultiCut {
					values = append(values, list-first+1)
				}
				values = append(values, alpha)
				for _, b := range beta {
					values = append(values, b)
				}
				s.add(values...)
			}
		}
	}
	return s.text()
}
