package sddp

import "slices"

// Simulation is the outcome of a policy over many scenarios. It is the same on all ranks, for any number
// of ranks and threads.
type Simulation struct {
	Sampling  Sampling
	Cost      Estimate // of the whole horizon
	Scenarios []ScenarioResult
	Stages    []StageResult
}

// ScenarioResult holds a scenario's figures over the whole horizon: energy in MWh, spill in the unit of
// storage.
type ScenarioResult struct {
	Cost        float64 `json:"cost"`
	Load        float64 `json:"load_mwh"`
	Hydro       float64 `json:"hydro_mwh"`
	Thermal     float64 `json:"thermal_mwh"`
	Deficit     float64 `json:"deficit_mwh"`
	Spill       float64 `json:"spill"`
	ShortStages int     `json:"stages_with_deficit"` // at any bus

	Costs CostParts `json:"costs"` // parts of Cost
}

// Quantile returns the q-quantile of the costs of the whole horizon.
//
// Not collective.
func (s *Simulation) Quantile(q float64) float64 {
	costs := s.costs()
	slices.Sort(costs)
	return quantile(costs, q)
}

// CVaR returns the mean cost of the costliest scenarios, a share alpha of all.
//
// Not collective.
func (s *Simulation) CVaR(alpha float64) float64 {
	costs := s.costs()
	slices.Sort(costs)
	slices.Reverse(costs)
	many := max(alpha*float64(len(costs)), 1) // with a share of the last one
	sum, whole := 0.0, min(int(many), len(costs))
	for _, cost := range costs[:whole] {
		sum += cost
	}
	if whole < len(costs) {
		sum += (many - float64(whole)) * costs[whole]
	}
	return sum / many
}

// costs returns the costs of the scenarios.
func (s *Simulation) costs() []float64 {
	var out []float64
	for _, one := range s.Scenarios {
		out = append(out, one.Cost)
	}
	return out
}

// Costs returns the parts of the mean cost.
//
// Not collective.
func (s *Simulation) Costs() (parts CostParts) {
	for i := range s.Scenarios {
		parts.add(1/float64(len(s.Scenarios)), s.Scenarios[i].Costs)
	}
	return parts
}

// Band holds the quantiles 0.1, 0.5 and 0.9 over the scenarios.
type Band [3]float64

// StageResult holds the means over the scenarios for a stage: power in MW, water in the units of the case,
// values of energy per MWh.
type StageResult struct {
	Cost         float64 // not discounted
	Costs        CostParts
	DeficitShare float64 // share of the scenarios with a deficit at any bus

	// By bus. DeficitRisk is the share of the scenarios with a deficit.
	Load, Thermal, Hydro, Deficit, MarginalCost, DeficitRisk []float64
	MarginalBand                                             []Band

	// By reservoir; Storage at the end. WaterValue is what the water for one
	// more MWh in the plants of the reservoir would save.
	Inflow, Storage, Spill, Generation, WaterValue []float64
	StorageBand, WaterBand                         []Band
	// Of all reservoirs, as a share of their capacity; 0 without capacity.
	Filled     float64
	FilledBand Band
	// What least storage and least outflow lacked, in the units of storage and flow; and the water
	// that negative inflows lacked, as a flow.
	ShortStorage, ShortOutflow, ShortInflow []float64

	ThermalPlant []float64 // by thermal plant
	Flow         []float64 // by line; negative if it flows from To to From

	Blocks []BlockResult // by load block, if the case has blocks
}

// BlockResult holds the means over the scenarios for a load block of a stage, as [StageResult] does.
type BlockResult struct {
	Load, Deficit, MarginalCost    []float64 // by bus
	Generation, ThermalPlant, Flow []float64 // by reservoir, thermal plant and line
}

// NetImport returns what lines bring to a bus, less what they take away, in MW.
//
// Not collective.
func (st *StageResult) NetImport(c *Case, bus int) float64 {
	net := 0.0
	for i, l := range c.Lines {
		if l.From == bus {
			net -= st.Flow[i]
		}
		if l.To == bus {
			net += st.Flow[i]
		}
	}
	return net
}

// banded returns how many figures of a record have a band.
func banded(c *Case) int { return 2*len(c.Reservoirs) + len(c.Buses) + 1 }

// recordWidth returns how many numbers a stage of a scenario is recorded in: the cost, the figures that have
// a band, and the others.
func recordWidth(c *Case) int {
	return 1 + banded(c) + len(c.Buses) + 6*len(c.Reservoirs) + len(c.Thermals) + len(c.Lines) + int(numCostParts) +
		len(c.Blocks)*blockWidth(c)
}

// blockWidth returns how many of them belong to a load block.
func blockWidth(c *Case) int {
	return 2*len(c.Buses) + len(c.Reservoirs) + len(c.Thermals) + len(c.Lines)
}

// pathWidth returns how many numbers a scenario is recorded in: the cost, and a record for each stage.
func pathWidth(c *Case) int { return 1 + c.Stages*recordWidth(c) }

// recordOf returns the record of a stage.
func recordOf(c *Case, path []float64, t int) []float64 {
	at := 1 + t*recordWidth(c)
	return path[at : at+recordWidth(c)]
}

// stageOf returns a stage whose figures by bus, reservoir, plant and line are in the memory of its record.
func stageOf(c *Case, path []float64, t int) *StageResult {
	w := recordOf(c, path, t)[1:]
	next := func(n int) []float64 {
		part := w[:n:n]
		w = w[n:]
		return part
	}
	buses, reserv := len(c.Buses), len(c.Reservoirs)
	st := &StageResult{
		Storage: next(reserv), WaterValue: next(reserv), MarginalCost: next(buses), Filled: next(1)[0], // with bands
		Deficit: next(buses), Inflow: next(reserv), Spill: next(reserv), Generation: next(reserv),
		ThermalPlant: next(len(c.Thermals)), Flow: next(len(c.Lines)),
		ShortStorage: next(reserv), ShortOutflow: next(reserv), ShortInflow: next(reserv),
	}
	st.Costs = CostParts(next(int(numCostParts)))
	for k := range c.Blocks {
		b := BlockResult{Deficit: next(buses), MarginalCost: next(buses), Generation: next(reserv), ThermalPlant: next(len(c.Thermals)), Flow: next(len(c.Lines))}
		for i := range c.Buses {
			b.Load = append(b.Load, c.blockLoad(t, k, i))
		}
		st.Blocks = append(st.Blocks, b)
	}
	return st
}

// stagesOf returns the stages of a scenario, in the memory of its record.
func stagesOf(c *Case, path []float64) (stages []StageResult) {
	for t := range c.Stages {
		st := stageOf(c, path, t)
		st.Cost = recordOf(c, path, t)[0]
		for b := range c.Buses {
			st.Load = append(st.Load, c.load(t, b))
		}
		stages = append(stages, *st)
	}
	return stages
}

// record writes the last solution of a stage to its record.
func (s *stage) record(c *Case, path []float64) {
	record, parts := recordOf(c, path, s.t), s.costs()
	record[0] = s.cost()
	out := stageOf(c, path, s.t)
	copy(record[len(record)-len(c.Blocks)*blockWidth(c)-len(parts):], parts[:])
	for k := range out.Blocks {
		s.recordBlock(&s.blocks[k], &out.Blocks[k])
	}
	copy(out.Inflow, s.inflow)
	copy(out.Storage, s.end(c))
	if capacity := c.capacity(); capacity > 0 {
		record[banded(c)] = total(out.Storage) / capacity
	}
	for r := range c.Reservoirs {
		out.Generation[r], out.Spill[r], out.WaterValue[r] = s.hydroMW(r), s.spilled(r), s.waterValue(c, r)
		out.ShortStorage[r], out.ShortOutflow[r], out.ShortInflow[r] = s.value(s.shortStorage[r]), s.value(s.shortOutflow[r]), s.value(s.shortInflow[r])
	}
	for i := range c.Thermals {
		out.ThermalPlant[i] = s.thermalMW(i)
	}
	for b := range c.Buses {
		out.Deficit[b], out.MarginalCost[b] = s.deficitMW(b), s.marginalCost(b)
	}
	for i := range c.Lines {
		out.Flow[i] = s.flowMW(i)
	}
}

// recordBlock writes the last solution of a load block to its record.
func (s *stage) recordBlock(w *loadBlock, out *BlockResult) {
	for b, row := range w.balance {
		out.Deficit[b], out.MarginalCost[b] = s.blockDeficit(w, b), s.lp.Dual(row)/w.hours
	}
	for r, col := range w.hydro {
		out.Generation[r] = s.lp.Value(col)
	}
	for i, col := range w.thermal {
		out.ThermalPlant[i] = s.lp.Value(col)
	}
	for l := range w.direct {
		out.Flow[l] = s.lp.Value(w.direct[l]) - s.lp.Value(w.reverse[l])
	}
}

// waterValue returns what the water for one more MWh in the plants of a reservoir would save.
func (s *stage) waterValue(c *Case, r int) float64 {
	return -s.lp.Dual(s.water[r]) * s.fill / (s.hours * c.Reservoirs[r].power())
}

// summer sums the records of scenarios, in the order of the scenarios.
type summer struct {
	c         *Case
	scenarios []ScenarioResult
	costs     []float64
	total     []float64   // sums of the records
	short     [][]int     // by stage and bus, and for any bus: scenarios with a deficit
	values    [][]float64 // by stage and figure with a band: of every scenario
}

// newSummer returns a summer for n scenarios.
func newSummer(c *Case, n int) *summer {
	s := &summer{c: c, total: make([]float64, pathWidth(c)), values: make([][]float64, c.Stages*banded(c))}
	for i := range s.values {
		s.values[i] = make([]float64, 0, n)
	}
	for range c.Stages {
		s.short = append(s.short, make([]int, len(c.Buses)+1))
	}
	return s
}

// shortage is the smallest deficit, in MW, that counts as one. It exceeds the solver's tolerance.
const shortage = 1e-3

// add adds a scenario.
func (s *summer) add(path []float64) {
	for i, x := range path {
		s.total[i] += x
	}
	c, n := s.c, banded(s.c)
	sum, worth := ScenarioResult{Cost: path[0]}, 1.0
	for t := range c.Stages {
		st, hours := stageOf(c, path, t), c.Hours(t)
		for i, x := range recordOf(c, path, t)[1 : 1+n] {
			s.values[t*n+i] = append(s.values[t*n+i], x)
		}
		sum.Costs.add(worth, st.Costs)
		worth *= c.discount(t)
		sum.Thermal += hours * total(st.ThermalPlant)
		sum.Hydro += hours * total(st.Generation)
		sum.Deficit += hours * total(st.Deficit)
		sum.Spill += c.perFlow(t) * total(st.Spill)
		for b, d := range st.Deficit {
			sum.Load += hours * c.load(t, b)
			if d > shortage {
				s.short[t][b]++
			}
		}
		if slices.Max(st.Deficit) > shortage {
			s.short[t][len(c.Buses)]++
			sum.ShortStages++
		}
	}
	s.costs = append(s.costs, path[0])
	s.scenarios = append(s.scenarios, sum)
}

// result returns the means.
func (s *summer) result(sampling Sampling) *Simulation {
	c, n := s.c, float64(len(s.scenarios))
	out := &Simulation{Sampling: sampling, Cost: estimateOf(s.costs), Scenarios: s.scenarios}
	for i := range s.total {
		s.total[i] /= n
	}
	for t := range c.Stages {
		st := stageOf(c, s.total, t)
		st.Cost = recordOf(c, s.total, t)[0]
		st.DeficitShare = float64(s.short[t][len(c.Buses)]) / n
		st.Thermal, st.Hydro = make([]float64, len(c.Buses)), make([]float64, len(c.Buses))
		for i, g := range c.Thermals {
			st.Thermal[g.Bus] += st.ThermalPlant[i]
		}
		for i, r := range c.Reservoirs {
			st.Hydro[r.Bus] += st.Generation[i]
		}
		for b := range c.Buses {
			st.Load = append(st.Load, c.load(t, b))
			st.DeficitRisk = append(st.DeficitRisk, float64(s.short[t][b])/n)
		}
		var bands []Band
		for _, v := range s.values[t*banded(c) : (t+1)*banded(c)] {
			slices.Sort(v)
			bands = append(bands, Band{quantile(v, 0.1), quantile(v, 0.5), quantile(v, 0.9)})
		}
		reserv := len(c.Reservoirs)
		st.StorageBand, st.WaterBand, st.MarginalBand = bands[:reserv], bands[reserv:2*reserv], bands[2*reserv:2*reserv+len(c.Buses)]
		st.FilledBand = bands[len(bands)-1]
		out.Stages = append(out.Stages, *st)
	}
	return out
}

// capacity returns how much water all reservoirs hold.
func (c *Case) capacity() float64 {
	sum := 0.0
	for _, r := range c.Reservoirs {
		sum += r.MaxStorage
	}
	return sum
}

// total returns the sum of numbers.
func total(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum
}

// quantile returns the q-quantile of sorted values by linear interpolation.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
