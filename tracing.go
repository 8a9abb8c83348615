package cohort

import (
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Region is a part of a program between [Comm.Region] and End. The zero Region is no part.
type Region struct {
	c      *comm.Comm
	ticket flight.Ticket
}

// Region begins a part of the program, whose name, begin and end the flight recorder keeps:
//
//	defer world.Region("assemble").End()
//
// The command cohort report --trace shows the regions of all ranks as a timeline. Regions may lie within
// each other, and goroutines may have their own. The recorder keeps the last 1024 operations and regions of a
// rank, the names of the first 100 or so, and of a name 48 bytes.
//
// Local. It does not communicate, and takes about as long as reading the clock.
func (c *Comm) Region(name string) Region { return Region{c.base(), c.base().BeginRegion(name)} }

// End ends the region.
//
// Local.
func (r Region) End() { r.c.EndRegion(r.ticket) }
