package cohort

import (
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Region is a part of a program, from a call of [Comm.Region] to End. End of the zero Region does nothing.
type Region struct {
	c      *comm.Comm
	ticket flight.Ticket
}

// Region begins a part of the program. The flight recorder keeps its name, beginning and end:
//
//	defer world.Region("assemble").End()
//
// The command cohort report --trace shows the regions of all ranks as a timeline. Regions may be
// nested, and goroutines may have different ones. The recorder keeps the last 1024 operations and regions of a
// rank, and the first 48 bytes of a name. Only the first 100 or so different names are kept.
//
// Not collective. It does not communicate, and takes about as long as reading the clock.
func (c *Comm) Region(name string) Region { return Region{c.base(), c.base().BeginRegion(name)} }

// End ends the region.
//
// Not collective.
func (r Region) End() { r.c.EndRegion(r.ticket) }
