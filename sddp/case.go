package sddp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Case is a hydrothermal system and its planning horizon. Stages are numbered from 0 in this package
// and from 1 in output. Power is in MW.
//
// Water has one of two units in a case. As energy, storage is in MW-month, the energy of one MW over one
// stage, and flows are in MW. As volume, storage is in hm3, flows are in m3/s, and every reservoir has a
// productivity. [Case.StorageUnit] tells which.
type Case struct {
	Name          string
	Description   string
	Currency      string
	Stages        int
	Periods       []string // names; each stage has the data of a period, see Case.Period
	HoursPerStage Series
	DeficitCost   float64 // per MWh
	SpillCost     float64 // per MWh
	Buses         []Bus
	Thermals      []Thermal
	Reservoirs    []Reservoir
	Lines         []Line

	// Optional parts: if a case lacks one, its hash does too, so that policies of older versions fit.

	DeficitTiers []DeficitTier `json:",omitempty"` // of the first parts of the load; the rest costs DeficitCost
	DiscountRate float64       `json:",omitempty"` // per year of 8760 hours
	Blocks       []Block       `json:",omitempty"` // parts of every stage with different loads
	Inflows      *InflowModel  `json:",omitempty"` // nil for independent lognormal inflows
	Terminal     [][]float64   `json:",omitempty"` // cuts of the cost after the last stage: alpha and the slopes
	FirstPeriod  int           `json:",omitempty"` // of the first stage
	Seasons      []string      `json:",omitempty"` // names, if inflows have other periods than the rest of the case
	FirstSeason  int           `json:",omitempty"` // of the first period
}

// Block is a part of the hours of a stage, such as those of the peak.
type Block struct {
	Name  string
	Share float64 // of the hours
}

// Series is a figure that may vary: empty if it is zero, one value for all periods, or one per period.
type Series []float64

// At returns the value in a period.
//
// Not collective.
func (s Series) At(period int) float64 {
	switch len(s) {
	case 0:
		return 0
	case 1:
		return s[0]
	}
	return s[period]
}

// max returns the largest value, min the smallest.
func (s Series) max() float64 { return slices.Max(append(Series{s.At(0)}, s...)) }
func (s Series) min() float64 { return slices.Min(append(Series{s.At(0)}, s...)) }

// MarshalJSON writes a series as in the files of a case: a number if one value holds for all periods.
func (s Series) MarshalJSON() ([]byte, error) {
	if len(s) < 2 {
		return json.Marshal(s.At(0))
	}
	return json.Marshal([]float64(s))
}

// DeficitTier is the cost of a deficit up to a share of the load of a bus, beyond the tiers before it.
type DeficitTier struct{ Share, CostPerMWh float64 }

// Bus is a node of the network.
type Bus struct {
	Name   string
	LoadMW []float64 // per period; nil for a bus without load, which has no deficit

	BlockLoadMW [][]float64 `json:",omitempty"` // by block and period; LoadMW is then their mean
}

// Thermal is a thermal power plant.
type Thermal struct {
	Name         string
	Bus          int
	MinMW, MaxMW Series
	CostPerMWh   Series
}

// Reservoir is stored water with its power plants.
type Reservoir struct {
	Name                       string
	Bus                        int
	MaxStorage, InitialStorage float64
	MaxGenerationMW            Series
	InflowMean, InflowStd      []float64 // per season; nil if an inflow model gives the inflows
	FirstInflow                *float64  `json:",omitempty"` // of the first stage; nil for its mean

	Productivity float64 `json:",omitempty"` // MW per m3/s; 0 if water is measured as energy
	Upstream     []int   `json:",omitempty"` // reservoirs whose turbined and spilled water arrives here

	// Storage at the end of a stage and outflow, turbined and spilled, should not be below these. A shortfall
	// costs its penalty for every MWh that the missing water is worth in the plants of the reservoir.
	MinStorage, MinOutflow               Series  `json:",omitempty"`
	MinStoragePenalty, MinOutflowPenalty float64 `json:",omitempty"`
}

// Line joins two buses.
type Line struct {
	From, To            int
	DirectMW, ReverseMW Series // capacity from From to To, and back
	CostPerMWh          Series
}

// volume reports whether water is measured as volume.
func (c *Case) volume() bool { return len(c.Reservoirs) > 0 && c.Reservoirs[0].Productivity > 0 }

// StorageUnit returns the unit of storage: MW-month or hm3.
//
// Not collective.
func (c *Case) StorageUnit() string {
	if c.volume() {
		return "hm3"
	}
	return "MW-month"
}

// MoneyUnit returns the unit in which amounts of money of a size are easy to read, and how much of
// the case's currency one unit is.
//
// Not collective.
func (c *Case) MoneyUnit(size float64) (unit string, scale float64) {
	switch {
	case math.Abs(size) >= 1e9:
		return "10⁹ " + c.Currency, 1e9
	case math.Abs(size) >= 1e6:
		return "10⁶ " + c.Currency, 1e6
	}
	return c.Currency, 1
}

// FlowUnit returns the unit of inflow, spill and outflow: MW or m3/s.
//
// Not collective.
func (c *Case) FlowUnit() string {
	if c.volume() {
		return "m3/s"
	}
	return "MW"
}

// perFlow returns how much storage a flow of one unit fills in a stage: 1 MW-month per MW, or the seconds
// of the stage in 10^6, which is hm3 per m3/s.
func (c *Case) perFlow(stage int) float64 {
	if c.volume() {
		return c.Hours(stage) * 3600 / 1e6
	}
	return 1
}

// power returns the output of the plants in MW from one unit of flow.
func (r *Reservoir) power() float64 {
	if r.Productivity > 0 {
		return r.Productivity
	}
	return 1
}

// Hours returns the length of a stage.
//
// Not collective.
func (c *Case) Hours(stage int) float64 { return c.HoursPerStage.At(c.Period(stage)) }

// share returns the share of a block in the hours of a stage.
func (c *Case) share(block int) float64 {
	if len(c.Blocks) == 0 {
		return 1
	}
	return c.Blocks[block].Share
}

// load returns the load of a bus in a stage, in MW.
func (c *Case) load(t, b int) float64 {
	if c.Buses[b].LoadMW == nil {
		return 0
	}
	return c.Buses[b].LoadMW[c.Period(t)]
}

// blockLoad returns the load of a bus in a block of a stage, in MW.
func (c *Case) blockLoad(stage, block, bus int) float64 {
	if loads := c.Buses[bus].BlockLoadMW; loads != nil {
		return loads[block][c.Period(stage)]
	}
	return c.load(stage, bus)
}

// discount returns the value, at the start of a stage, of one unit of money at its end.
func (c *Case) discount(stage int) float64 {
	if c.DiscountRate == 0 {
		return 1
	}
	const hoursPerYear = 8760
	return math.Pow(1+c.DiscountRate, -c.Hours(stage)/hoursPerYear)
}

// dearest returns the largest cost of a MW over a stage.
func (c *Case) dearest() float64 {
	most := max(c.DeficitCost, c.SpillCost)
	for _, g := range c.Thermals {
		most = max(most, g.CostPerMWh.max())
	}
	for _, r := range c.Reservoirs {
		most = max(most, r.MinStoragePenalty, r.MinOutflowPenalty)
	}
	return most * c.HoursPerStage.max()
}

// The state between two stages is the storage of each reservoir and, with a PAR, lagged inflows.

// states returns how many numbers the state has.
func (c *Case) states() int {
	n := len(c.Reservoirs)
	if par := c.par(); par != nil {
		n += par.states()
	}
	return n
}

// minState returns the smallest value of every number of the state: no storage, and the opposite of the
// largest value of a lagged inflow, since it may be negative.
func (c *Case) minState() []float64 {
	least := c.maxState()
	for i := range least {
		if i < len(c.Reservoirs) {
			least[i] = 0
		}
		least[i] = -least[i]
	}
	return least
}

// CutColumns returns the names of the numbers of a cut, with their units: alpha, the slope for each reservoir
// and, with a PAR, for each lagged inflow.
//
// Not collective.
func (c *Case) CutColumns() []string {
	columns := []string{"alpha " + c.Currency}
	for _, r := range c.Reservoirs {
		columns = append(columns, fmt.Sprintf("%s %s/%s", r.Name, c.Currency, c.StorageUnit()))
	}
	if par := c.par(); par != nil {
		for r, past := range par.Past {
			for k := range past {
				columns = append(columns, fmt.Sprintf("%s inflow %d before %s/%s", c.Reservoirs[r].Name, 1+k, c.Currency, c.FlowUnit()))
			}
		}
	}
	return columns
}

// maxState returns the largest value of every number of the state. Lagged inflows may exceed theirs, twice
// the largest of the record, in a rare scenario.
func (c *Case) maxState() []float64 {
	var most []float64
	for _, r := range c.Reservoirs {
		most = append(most, r.MaxStorage)
	}
	if par := c.par(); par != nil {
		for r, past := range par.Past {
			for range past {
				most = append(most, 2*par.Most[r])
			}
		}
	}
	return most
}

// initialState returns the state before the first stage.
func (c *Case) initialState() []float64 {
	var state []float64
	for _, r := range c.Reservoirs {
		state = append(state, r.InitialStorage)
	}
	if par := c.par(); par != nil {
		for _, past := range par.Past {
			state = append(state, past...)
		}
	}
	return state
}

// expected returns the mean of the noise of a stage: the mean inflows or, with a PAR, residuals of zero; in the
// first stage that of the inflows which the case gives.
func (c *Case) expected(stage int) []float64 {
	noise := make([]float64, len(c.Reservoirs))
	if c.par() == nil {
		noise = c.meanInflow(stage)
	}
	if stage > 0 {
		return noise
	}
	first := make([]float64, len(noise))
	for r, res := range c.Reservoirs {
		if res.FirstInflow != nil {
			first[r] = *res.FirstInflow
		}
	}
	c.noiseOf(first, c.initialState(), 0)
	for r, res := range c.Reservoirs {
		if res.FirstInflow != nil {
			noise[r] = first[r]
		}
	}
	return noise
}

// downstream returns the reservoir where the outflow of a reservoir arrives, or -1.
func (c *Case) downstream(reservoir int) int {
	return slices.IndexFunc(c.Reservoirs, func(r Reservoir) bool { return slices.Contains(r.Upstream, reservoir) })
}

// waterWorth returns the most that one more unit of inflow to a reservoir can save, in and after a stage: the
// energy in all plants down the river instead of a deficit, the least outflow of each of them, the least storage
// of one of them in each stage that is left, and the value of storage after the last stage.
func (c *Case) waterWorth(stage, reservoir int) float64 {
	flow, stored, after := 0.0, 0.0, 0.0
	for r := reservoir; r >= 0; r = c.downstream(r) {
		res := &c.Reservoirs[r]
		flow += res.power() * (c.DeficitCost + res.MinOutflowPenalty)
		stored = max(stored, res.power()*res.MinStoragePenalty)
		for _, cut := range c.Terminal {
			after = max(after, -cut[1+r])
		}
	}
	return c.Hours(stage)*(flow+float64(c.Stages-stage)*stored) + c.perFlow(stage)*after
}

// Period returns the index of the period of a stage.
//
// Not collective.
func (c *Case) Period(stage int) int { return (c.FirstPeriod + stage) % len(c.Periods) }

// Season returns the index of the season of a stage, which decides its inflows: its period, unless the case has
// seasons.
//
// Not collective.
func (c *Case) Season(stage int) int {
	if c.Seasons == nil {
		return c.Period(stage)
	}
	return (c.FirstSeason + c.FirstPeriod + stage) % len(c.Seasons)
}

// seasons returns the names of the seasons.
func (c *Case) seasons() []string {
	if c.Seasons == nil {
		return c.Periods
	}
	return c.Seasons
}

// StageName returns the name of the period of a stage.
//
// Not collective.
func (c *Case) StageName(stage int) string { return c.Periods[c.Period(stage)] }

// SHA256 returns a hash, in hexadecimal, of everything in the case that a policy depends on. The
// layout of the files and the description do not matter.
//
// Not collective.
func (c *Case) SHA256() string {
	plain := *c
	plain.Description = ""
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(&plain); err != nil {
		panic(err) // a Case holds only strings and finite numbers
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}
