package npb

import (
	"time"

	"github.com/cohort-hpc/cohort"
)

// Clock measures the timed part of a kernel on one rank, and how much of it is communication. The time in communication
// contains waiting for other ranks.
type Clock struct {
	begin                time.Time
	total, communication time.Duration
}

// Start begins the timed part on all ranks.
//
// Collective: all ranks call it.
func (c *Clock) Start(world *cohort.Comm) error {
	err := world.Barrier()
	*c = Clock{begin: time.Now()}
	return err
}

// Stop ends the timed part.
func (c *Clock) Stop() { c.total = time.Since(c.begin) }

// Communication counts the time since begin as communication. A function that communicates begins with
//
//	defer clock.Communication(time.Now())
func (c *Clock) Communication(begin time.Time) { c.communication += time.Since(begin) }

// slowest returns the longest time of any rank, in seconds, and the least and the most that a rank spent in communication.
func (c *Clock) slowest(world *cohort.Comm) (total float64, communication [2]float64, err error) {
	most := []float64{c.total.Seconds(), -c.communication.Seconds(), c.communication.Seconds()}
	err = cohort.Allreduce(world, most, most, cohort.Max)
	return most[0], [2]float64{-most[1], most[2]}, err
}
