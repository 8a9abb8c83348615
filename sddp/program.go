package sddp

import "github.com/cohort-hpc/cohort/sddp/lp"

// This file builds the program of a stage, whose type describes it.

// addColumns adds all columns but those of limits.
func (s *stage) addColumns(c *Case) {
	for k := range max(len(c.Blocks), 1) {
		s.blocks = append(s.blocks, loadBlock{share: c.share(k), hours: s.hours * c.share(k)})
	}
	p := c.Period(s.t)
	for k := range s.blocks {
		w := &s.blocks[k]
		for _, g := range c.Thermals {
			w.thermal = append(w.thermal, s.addColumn(costThermal, w.hours*g.CostPerMWh.At(p), g.MinMW.At(p), g.MaxMW.At(p)))
		}
		for _, r := range c.Reservoirs {
			w.hydro = append(w.hydro, s.lp.AddColumn(0, 0, r.MaxGenerationMW.At(p)))
		}
	}
	for _, r := range c.Reservoirs {
		s.spill = append(s.spill, s.addColumn(costSpill, s.hours*r.power()*c.SpillCost, 0, lp.Inf))
	}
	for k := range s.blocks {
		w := &s.blocks[k]
		for b := range c.Buses {
			w.deficit = append(w.deficit, s.addDeficit(c, k, b))
		}
		for _, l := range c.Lines {
			w.direct = append(w.direct, s.addColumn(costLines, w.hours*l.CostPerMWh.At(p), 0, l.DirectMW.At(p)))
			w.reverse = append(w.reverse, s.addColumn(costLines, w.hours*l.CostPerMWh.At(p), 0, l.ReverseMW.At(p)))
		}
	}
	for _, r := range c.Reservoirs {
		s.storage = append(s.storage, s.lp.AddColumn(0, 0, r.MaxStorage))
	}
	limit := lp.Inf
	if s.t == c.Stages-1 && c.Terminal == nil {
		limit = 0 // no cost remains after the last stage
	}
	for _, weight := range s.weights {
		s.theta = append(s.theta, s.addColumn(costLater, s.discount*weight, 0, limit))
	}
}

// addColumn adds a column whose cost is a part of the cost of the stage.
func (s *stage) addColumn(part costPart, cost, lo, hi float64) int {
	col := s.lp.AddColumn(cost, lo, hi)
	if cost != 0 {
		s.priced = append(s.priced, pricedColumn{part, col, cost})
	}
	return col
}

// addDeficit adds and returns the columns of the deficit of a bus in a block, one per tier.
func (s *stage) addDeficit(c *Case, k, b int) (tiers []int) {
	if c.Buses[b].LoadMW == nil {
		return nil
	}
	hours := s.blocks[k].hours
	for _, tier := range c.DeficitTiers {
		tiers = append(tiers, s.addColumn(costDeficit, hours*tier.CostPerMWh, 0, tier.Share*c.blockLoad(s.t, k, b)))
	}
	return append(tiers, s.addColumn(costDeficit, hours*c.DeficitCost, 0, lp.Inf))
}

// addBalance adds the row of a bus in a block.
func (s *stage) addBalance(c *Case, k, b int) {
	w := &s.blocks[k]
	var row terms
	for i, g := range c.Thermals {
		if g.Bus == b {
			row.put(w.thermal[i], 1)
		}
	}
	for i, r := range c.Reservoirs {
		if r.Bus == b {
			row.put(w.hydro[i], 1)
		}
	}
	for _, col := range w.deficit[b] {
		row.put(col, 1)
	}
	for i, l := range c.Lines {
		if l.From == b {
			row.put(w.direct[i], -1)
			row.put(w.reverse[i], 1)
		}
		if l.To == b {
			row.put(w.direct[i], 1)
			row.put(w.reverse[i], -1)
		}
	}
	w.balance = append(w.balance, s.lp.AddRow(lp.EQ, c.blockLoad(s.t, k, b), row.cols, row.coefs))
}

// addWater adds the row of a reservoir.
func (s *stage) addWater(c *Case, i int) {
	var row terms
	row.put(s.storage[i], 1)
	s.putOutflow(&row, c, i, s.fill)
	for _, up := range c.Reservoirs[i].Upstream {
		s.putOutflow(&row, c, up, -s.fill)
	}
	if s.par != nil {
		s.shortInflow[i] = s.addColumn(costInflow, 2*c.waterWorth(s.t, i), 0, lp.Inf)
		row.put(s.shortInflow[i], -s.fill)
	}
	s.water = append(s.water, s.lp.AddRow(lp.EQ, 0, row.cols, row.coefs))
}

// putOutflow adds scale times the outflow of a reservoir to a row.
func (s *stage) putOutflow(row *terms, c *Case, i int, scale float64) {
	for _, w := range s.blocks {
		row.put(w.hydro[i], w.share*scale/c.Reservoirs[i].power())
	}
	row.put(s.spill[i], scale)
}

// addLimits adds a row and a column for the least storage of a reservoir, and for its least outflow.
func (s *stage) addLimits(c *Case, i int) {
	r, p := &c.Reservoirs[i], c.Period(s.t)
	if least := r.MinStorage.At(p); least > 0 {
		s.shortStorage[i] = s.addColumn(costStorage, s.hours*r.power()*r.MinStoragePenalty/s.fill, 0, lp.Inf)
		s.lp.AddRow(lp.GE, least, []int{s.storage[i], s.shortStorage[i]}, []float64{1, 1})
	}
	if least := r.MinOutflow.At(p); least > 0 {
		var row terms
		s.putOutflow(&row, c, i, 1)
		s.shortOutflow[i] = s.addColumn(costOutflow, s.hours*r.power()*r.MinOutflowPenalty, 0, lp.Inf)
		row.put(s.shortOutflow[i], 1)
		s.lp.AddRow(lp.GE, least, row.cols, row.coefs)
	}
}

// terms are the columns of a row, with their coefficients.
type terms struct {
	cols  []int
	coefs []float64
}

func (w *terms) put(col int, coef float64) {
	w.cols, w.coefs = append(w.cols, col), append(w.coefs, coef)
}
