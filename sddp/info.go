package sddp

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/sddp/internal/text"
)

// Facts are the main figures of a case.
type Facts struct {
	Name            string  `json:"name"`
	SHA256          string  `json:"sha256"`
	Stages          int     `json:"stages"`
	HoursPerStage   Series  `json:"hours_per_stage"`
	Buses           int     `json:"buses"`
	Lines           int     `json:"lines"`
	Thermals        int     `json:"thermals"`
	ThermalMW       float64 `json:"thermal_mw"`
	Reservoirs      int     `json:"reservoirs"`
	HydroMW         float64 `json:"hydro_mw"`
	StorageUnit     string  `json:"storage_unit"`
	FlowUnit        string  `json:"flow_unit"`
	MaxStorage      float64 `json:"max_storage"`
	InitialStorage  float64 `json:"initial_storage"`
	Load            float64 `json:"load"`   // MW, sum over the stages
	Inflow          float64 `json:"inflow"` // expected, sum over the stages
	Columns         int     `json:"columns"`
	Rows            int     `json:"rows"` // of a stage's linear program, without cuts
	DeficitCost     float64 `json:"deficit_cost"`
	SpillCost       float64 `json:"spill_cost"`
	CheapestThermal float64 `json:"cheapest_thermal"`
	DearestThermal  float64 `json:"dearest_thermal"`

	Warnings []string `json:"warnings,omitempty"`
}

// Facts returns the main figures of the case.
//
// Not collective.
func (c *Case) Facts() Facts {
	f := Facts{
		Name: c.Name, SHA256: c.SHA256(), Stages: c.Stages, HoursPerStage: c.HoursPerStage,
		Buses: len(c.Buses), Lines: len(c.Lines), Thermals: len(c.Thermals), Reservoirs: len(c.Reservoirs),
		StorageUnit: c.StorageUnit(), FlowUnit: c.FlowUnit(), DeficitCost: c.DeficitCost, SpillCost: c.SpillCost, Warnings: c.Warnings(),
	}
	for i, g := range c.Thermals {
		f.ThermalMW += g.MaxMW.max()
		if least := g.CostPerMWh.min(); i == 0 || least < f.CheapestThermal {
			f.CheapestThermal = least
		}
		f.DearestThermal = max(f.DearestThermal, g.CostPerMWh.max())
	}
	for _, r := range c.Reservoirs {
		f.HydroMW += r.MaxGenerationMW.max()
		f.MaxStorage += r.MaxStorage
		f.InitialStorage += r.InitialStorage
	}
	blocks := max(len(c.Blocks), 1)
	f.Columns = blocks*(len(c.Thermals)+len(c.Reservoirs)+2*len(c.Lines)) + 2*len(c.Reservoirs) + 1
	f.Rows = c.rows()
	for b, bus := range c.Buses {
		if bus.LoadMW != nil {
			f.Columns += blocks * (1 + len(c.DeficitTiers))
		}
		for t := range c.Stages {
			f.Load += c.load(t, b)
		}
	}
	for _, r := range c.Reservoirs {
		f.Columns += r.limits()
	}
	for t := range c.Stages {
		f.Inflow += total(c.meanInflow(t))
	}
	return f
}

// maxWarnings is the largest number of warnings about one case.
const maxWarnings = 10

// Warnings returns what is allowed in a case but is probably a mistake, one sentence each.
//
// Not collective.
func (c *Case) Warnings() (all []string) {
	more := 0
	add := func(format string, args ...any) {
		if len(all) == maxWarnings {
			more++
			return
		}
		all = append(all, fmt.Sprintf(format, args...))
	}
	idle, dearest := 0, Thermal{CostPerMWh: Series{c.DeficitCost}}
	for _, g := range c.Thermals {
		if g.MaxMW.max() > 0 && g.CostPerMWh.min() > c.DeficitCost {
			idle++
			if g.CostPerMWh.min() > dearest.CostPerMWh.min() {
				dearest = g
			}
		}
	}
	if idle > 0 {
		add("deficit_cost is %g: a deficit costs less than %s, such as %q at bus %q (%g), so load is shed before they run",
			c.DeficitCost, text.Plural(idle, "thermal plant"), dearest.Name, c.Buses[dearest.Bus].Name, dearest.CostPerMWh.min())
	}
	for _, r := range c.Reservoirs {
		for p, std := range r.InflowStd {
			if mean := r.InflowMean[p]; std > wideStd*mean {
				add("inflow_std of reservoir %q in period %q is %.6g, %.3g times the mean of %.6g; monthly inflows have 0.2 to 1 times the mean",
					r.Name, c.seasons()[p], std, std/mean, mean)
			}
		}
	}
	for r, res := range c.Reservoirs {
		if par := c.par(); par != nil && par.growth(r) >= 1 {
			add("the PAR fitted to the inflows of reservoir %q is not stationary: it multiplies a deviation by %.3g each year, and is stationary below 1; use a longer record or another inflow_model",
				res.Name, par.growth(r))
		}
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return all
}

// wideStd is the deviation of an inflow, relative to its mean, from which Warnings reports it.
const wideStd = 2

// Describe returns a readable description of the case.
//
// Not collective.
func (c *Case) Describe() string {
	var b strings.Builder
	f := c.Facts()
	fmt.Fprintf(&b, "%s: %s\n\n", f.Name, c.Description)
	hours := fmt.Sprintf("%g", f.HoursPerStage.min())
	if most := f.HoursPerStage.max(); most > f.HoursPerStage.min() {
		hours += fmt.Sprintf(" to %g", most)
	}
	fmt.Fprintf(&b, "  horizon      %d stages of %s h, from %s\n", f.Stages, hours, c.StageName(0))
	fmt.Fprintf(&b, "  network      %s, %s\n", text.Plural(f.Buses, "bus"), text.Plural(f.Lines, "line"))
	fmt.Fprintf(&b, "  load         %.0f MW on average\n", f.Load/float64(f.Stages))
	fmt.Fprintf(&b, "  thermal      %s, %.0f MW, %g to %g %s/MWh\n", text.Plural(f.Thermals, "plant"), f.ThermalMW, f.CheapestThermal, f.DearestThermal, c.Currency)
	fmt.Fprintf(&b, "  hydro        %s, %.0f MW, inflow %.0f %s on average\n", text.Plural(f.Reservoirs, "reservoir"), f.HydroMW, f.Inflow/float64(f.Stages), f.FlowUnit)
	fmt.Fprintf(&b, "  storage      %.0f %s, %s full at the start\n", f.MaxStorage, f.StorageUnit, text.Percent(f.InitialStorage, f.MaxStorage))
	fmt.Fprintf(&b, "  deficit      %g %s/MWh, spill %g %s/MWh\n", c.DeficitCost, c.Currency, c.SpillCost, c.Currency)
	fmt.Fprintf(&b, "  program      %d columns and %d rows per stage, plus cuts\n", f.Columns, f.Rows)
	fmt.Fprintf(&b, "  sha256       %s\n\n", f.SHA256)

	w := text.Table(&b)
	fmt.Fprintf(w, "bus\tload MW\tthermal MW\thydro MW\tinflow %s\tstorage %s\tat start\t\n", f.FlowUnit, f.StorageUnit)
	for i, bus := range c.Buses {
		var load, thermal, hydro, inflow, most, start float64
		for t := range c.Stages {
			load += c.load(t, i) / float64(c.Stages)
		}
		for _, g := range c.Thermals {
			if g.Bus == i {
				thermal += g.MaxMW.max()
			}
		}
		for at, r := range c.Reservoirs {
			if r.Bus != i {
				continue
			}
			hydro += r.MaxGenerationMW.max()
			most += r.MaxStorage
			start += r.InitialStorage
			for t := range c.Stages {
				inflow += c.meanInflow(t)[at] / float64(c.Stages)
			}
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t\n", bus.Name, load, thermal, hydro, inflow, most, text.Percent(start, most))
	}
	w.Flush()
	for _, warning := range f.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s\n", warning)
	}
	return b.String()
}
