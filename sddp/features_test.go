package sddp

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// randomCase returns a small system: one to three buses in a chain, sometimes one without load, one or two
// reservoirs, and prices that often coincide, so that optima are degenerate.
func randomCase(rng *rand.Rand) *Case {
	c := &Case{
		Name: "random", Currency: "$", Stages: 2 + rng.IntN(3), Periods: []string{"wet", "dry", "late"},
		HoursPerStage: Series{[]float64{1, 730}[rng.IntN(2)]}, DeficitCost: 500, SpillCost: []float64{0, 0.01, 3}[rng.IntN(3)],
	}
	buses := 1 + rng.IntN(3)
	for b := range buses {
		bus := Bus{Name: fmt.Sprint("bus", b)}
		if b == 0 || rng.IntN(4) > 0 {
			bus.LoadMW = []float64{float64(20 + rng.IntN(60)), float64(20 + rng.IntN(60)), float64(20 + rng.IntN(60))}
		}
		c.Buses = append(c.Buses, bus)
		if b > 0 {
			c.Lines = append(c.Lines, Line{b - 1, b, Series{float64(rng.IntN(40))}, Series{float64(rng.IntN(40))}, Series{[]float64{0, 0.1}[rng.IntN(2)]}})
		}
	}
	for i := range 1 + rng.IntN(5) {
		g := Thermal{
			Name: fmt.Sprint("plant", i), Bus: rng.IntN(buses),
			MinMW: Series{0}, MaxMW: Series{float64(5 + rng.IntN(25))}, CostPerMWh: Series{float64(10 * rng.IntN(12))},
		}
		if rng.IntN(5) == 0 && c.Buses[g.Bus].LoadMW != nil {
			g.MinMW = Series{2}
		}
		c.Thermals = append(c.Thermals, g)
	}
	for i := range 1 + rng.IntN(2) {
		most := float64(20 + rng.IntN(80))
		r := Reservoir{Name: fmt.Sprint("lake", i), Bus: rng.IntN(buses), MaxStorage: most, InitialStorage: most * rng.Float64(), MaxGenerationMW: Series{float64(10 + rng.IntN(50))}}
		for range c.Periods {
			mean := float64(5 + rng.IntN(40))
			r.InflowMean = append(r.InflowMean, mean)
			r.InflowStd = append(r.InflowStd, mean*rng.Float64())
		}
		c.Reservoirs = append(c.Reservoirs, r)
	}
	return c
}

// features add something to a random case that a case need not have. Random cases from the twelfth on have one of
// them each, then all of them together, and so on.
var features = []struct {
	name string
	add  func(c *Case, rng *rand.Rand)
}{
	{"series", func(c *Case, rng *rand.Rand) { // that vary by period
		vary := func(s Series) Series { return Series{s[0], s[0] + float64(rng.IntN(20)), s[0]} }
		for i := range c.Thermals {
			c.Thermals[i].MaxMW, c.Thermals[i].CostPerMWh = vary(c.Thermals[i].MaxMW), vary(c.Thermals[i].CostPerMWh)
		}
		for i := range c.Reservoirs {
			c.Reservoirs[i].MaxGenerationMW = vary(c.Reservoirs[i].MaxGenerationMW)
		}
		for i := range c.Lines {
			c.Lines[i].DirectMW, c.Lines[i].CostPerMWh = vary(c.Lines[i].DirectMW), vary(c.Lines[i].CostPerMWh)
		}
	}},
	{"tiers", func(c *Case, rng *rand.Rand) {
		c.DeficitTiers = []DeficitTier{{0.05, 60 + 40*rng.Float64()}, {0.1, 200}}
	}},
	{"discount", func(c *Case, rng *rand.Rand) { c.DiscountRate = 0.5 * rng.Float64() }},
	{"limits", func(c *Case, rng *rand.Rand) {
		for i := range c.Reservoirs {
			r := &c.Reservoirs[i]
			r.MinStorage, r.MinStoragePenalty = Series{0, r.MaxStorage * rng.Float64(), r.MaxStorage}, 300*rng.Float64()
			r.MinOutflow, r.MinOutflowPenalty = Series{40 * rng.Float64()}, 300*rng.Float64()
		}
	}},
	{"cascade", func(c *Case, rng *rand.Rand) { // in hm3, with stages of different lengths
		c.HoursPerStage = Series{700, 300, 744}
		for len(c.Reservoirs) < 3 {
			r := c.Reservoirs[0]
			r.Name = fmt.Sprint("lake", len(c.Reservoirs))
			c.Reservoirs = append(c.Reservoirs, r)
		}
		for i := range c.Reservoirs {
			c.Reservoirs[i].Productivity = 0.2 + rng.Float64()
		}
		c.Reservoirs[2].Upstream = []int{0}
		down := &c.Reservoirs[2*rng.IntN(2)]
		down.Upstream = append(down.Upstream, 1)
	}},
	{"blocks", func(c *Case, rng *rand.Rand) {
		c.Blocks = []Block{{"peak", 0.2}, {"rest", 0.8}}
		for b := range c.Buses {
			bus := &c.Buses[b]
			if bus.LoadMW == nil || rng.IntN(4) == 0 {
				continue // the same in both blocks
			}
			mean := slices.Clone(bus.LoadMW)
			peak := slices.Clone(bus.LoadMW)
			for p := range mean {
				peak[p] += 30 * rng.Float64()
				bus.LoadMW[p] = 0.2*peak[p] + 0.8*mean[p]
			}
			bus.BlockLoadMW = [][]float64{peak, mean}
		}
	}},
	{"openings", func(c *Case, rng *rand.Rand) { // with probabilities, in the first stage too
		c.Inflows = &InflowModel{}
		for range c.Stages {
			p := 0.1 + 0.8*rng.Float64()
			stage := []Opening{{Probability: p}, {Probability: 1 - p}}
			for k := range stage {
				for range c.Reservoirs {
					stage[k].Inflow = append(stage[k].Inflow, 50*rng.Float64())
				}
			}
			c.Inflows.Openings = append(c.Inflows.Openings, stage)
		}
		for r := range c.Reservoirs {
			c.Reservoirs[r].InflowMean, c.Reservoirs[r].InflowStd = nil, nil
		}
	}},
	{"PAR", func(c *Case, rng *rand.Rand) { // sometimes with negative inflows
		m := &PAR{}
		for range c.Periods {
			var constant []float64
			var coefs [][]float64
			for range c.Reservoirs {
				constant = append(constant, 20*rng.Float64())
				coefs = append(coefs, []float64{0.9*rng.Float64() - 0.2, 0.6*rng.Float64() - 0.3}[:rng.IntN(3)])
			}
			m.Constant, m.Coefs, m.Mean = append(m.Constant, constant), append(m.Coefs, coefs), append(m.Mean, constant)
		}
		for range c.Reservoirs {
			m.Past, m.Most = append(m.Past, []float64{40 * rng.Float64(), 40 * rng.Float64()}), append(m.Most, 40)
		}
		for range 4 {
			var year [][]float64
			for range c.Periods {
				var residual []float64
				for range c.Reservoirs {
					residual = append(residual, 40*rng.Float64()-25)
				}
				year = append(year, residual)
			}
			m.Residual = append(m.Residual, year)
		}
		c.Inflows = &InflowModel{PAR: m}
	}},
	{"terminal cuts", func(c *Case, rng *rand.Rand) {
		for range 3 {
			cut := []float64{c.HoursPerStage[0] * 5000 * rng.Float64()}
			for range c.states() {
				cut = append(cut, -c.HoursPerStage[0]*100*rng.Float64())
			}
			c.Terminal = append(c.Terminal, cut)
		}
	}},
	{"no water", func(c *Case, rng *rand.Rand) { c.Reservoirs = nil }},
}

// featured returns random case n.
func featured(n int, rng *rand.Rand) (name string, c *Case) {
	c = randomCase(rng)
	if n < 12 {
		return fmt.Sprint(n), c
	}
	round, i := (n-12)/(len(features)+1), (n-12)%(len(features)+1)
	if i < len(features) {
		features[i].add(c, rng)
		return fmt.Sprint(n, " ", features[i].name), c
	}
	other := []string{"PAR", "openings"}[round%2] // a case has one inflow model
	for _, f := range features {
		if f.name != "no water" && f.name != other {
			f.add(c, rng)
		}
	}
	return fmt.Sprint(n, " all but ", other), c
}
