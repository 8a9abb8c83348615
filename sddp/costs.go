package sddp

import "encoding/json"

// CostParts are the parts of a cost, in the order of [CostPartNames].
type CostParts [numCostParts]float64

// CostPartNames name the parts of a cost. The cost of water that negative inflows lack is a part of its own: see
// [PAR].
var CostPartNames = [numCostParts]string{
	"thermal", "deficit", "spill", "lines", "min_storage", "min_outflow", "negative_inflow", "after_horizon",
}

type costPart int

const (
	costThermal costPart = iota
	costDeficit
	costSpill
	costLines
	costStorage // the penalty of storage below its least
	costOutflow // the same of outflow
	costInflow  // of the water that a negative inflow lacks
	costLater   // after the stage: counts in the last stage only
	numCostParts
)

// pricedColumn is a column of a program, and what one unit of it costs.
type pricedColumn struct {
	part costPart
	col  int
	cost float64
}

// Penalties returns the cost of limits that were missed and of negative inflows: what a planner would not pay.
//
// Not collective.
func (p *CostParts) Penalties() float64 { return p[costStorage] + p[costOutflow] + p[costInflow] }

// MarshalJSON writes an object with the names of the parts.
func (p CostParts) MarshalJSON() ([]byte, error) {
	named := map[string]float64{}
	for i, name := range CostPartNames {
		named[name] = p[i]
	}
	return json.Marshal(named)
}

// add adds a multiple of other parts.
func (p *CostParts) add(times float64, parts CostParts) {
	for i, x := range parts {
		p[i] += times * x
	}
}
