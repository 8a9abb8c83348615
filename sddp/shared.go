package sddp

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// What all ranks read alike, the inflows and the cuts, is in memory of which every node has one copy
// (cohort.SharedRegion). Each node writes its own: every rank a part, or its leader all, which is the
// same where ranks have no memory in common and each is its own leader. After a fence all read.
//
// Nothing of it is to be reached after the region is closed: a Policy has cuts of its own.

// region is shared memory that is filled part by part.
type region = cohort.SharedRegion[float64]

// shareNoise is NewNoise with the inflows once per node, for as long as the region is open. The ranks
// of a node draw those of a block of stages each. It is an error on all ranks if the nodes have drawn other
// ones: the outcome would depend on who does what.
//
// Collective: all ranks of world call it.
func shareNoise(world *cohort.Comm, w *crew, c *Case, seed uint64, openings int) (*Noise, *region, error) {
	n := noiseOf(c, seed, openings)
	r, err := cohort.NewSharedRegion[float64](world, n.numbers(c.Stages))
	if err != nil {
		return nil, nil, fmt.Errorf("inflows: %w", err)
	}
	if n.inflow, err = r.Slice(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("inflows: %w", err), r.Close())
	}
	node, size := r.Node().Rank(), r.Node().Size()
	lo, hi := node*c.Stages/size, (node+1)*c.Stages/size
	failed := w.each(hi-lo, func(_, i int) error { n.draw(c, lo+i); return nil })
	if err := errors.Join(failed, r.Fence()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("inflows: %w", err), r.Close())
	}
	if err := n.compare(world); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return n, r, nil
}

// compare returns an error on all ranks unless all have the same inflows.
//
// Collective: all ranks of world call it.
func (n *Noise) compare(world *cohort.Comm) error {
	n.digest = n.sum()
	return newTeam(world).same("inflows: their processors do not compute alike", fingerprint(n.digest))
}

// cutMemory is the pool of a training in shared regions. They do not grow, and a training may stop
// long before its last iteration; so there are several, each for as many iterations as all before.
type cutMemory struct {
	world      *cohort.Comm
	pool       *Pool
	passes     int // cuts of a stage in an iteration
	iterations int // of the training, at most
	room       int // iterations that the regions have room for
	first      int // numbers that the first of them has room for
	regions    []*region
}

// firstCuts is for how many numbers there is room at first, at least for an iteration: a mebibyte.
const firstCuts = 1 << 17

// newCutMemory returns an empty pool. Memory is allocated when it is needed.
func newCutMemory(world *cohort.Comm, c *Case, passes, iterations int) *cutMemory {
	return &cutMemory{
		world: world, pool: newPool(c.Stages, len(c.Reservoirs)), passes: passes, iterations: iterations, first: firstCuts,
	}
}

// reserve makes room for an iteration.
//
// Collective: all ranks call it, for one iteration after the other.
func (m *cutMemory) reserve(iteration int) error {
	if iteration < m.room || m.pool.Stages() == 0 {
		return nil
	}
	width := 1 + m.pool.reserv
	each := m.pool.Stages() * m.passes * width // numbers in an iteration
	more := min(max(m.room, m.first/each, 1), m.iterations-m.room)
	r, err := cohort.NewSharedRegion[float64](m.world, more*each)
	if err != nil {
		return fmt.Errorf("memory for %d more iterations: %w", more, err)
	}
	m.regions = append(m.regions, r)
	all, err := r.Slice()
	if err != nil {
		return err
	}
	m.room += more
	for t := range m.pool.Stages() {
		n := more * m.passes * width
		m.pool.extend(t, all[t*n:t*n:(t+1)*n])
	}
	return nil
}

// reserveFirst makes room for so many iterations, of which there are cuts already, and more.
//
// Collective: all ranks call it, before anything else.
func (m *cutMemory) reserveFirst(iterations int) error {
	m.first = max(m.first, iterations*m.pool.Stages()*m.passes*(1+m.pool.reserv))
	return m.reserve(iterations - 1)
}

// adopt takes over the cuts of so many iterations from another pool, which each rank has the same of. It may
// be in memory of ranks that are lost: a node has that until the last of them gives it back.
//
// Collective: all ranks call it, before anything else.
func (m *cutMemory) adopt(from *Pool, iterations int) error {
	if iterations == 0 {
		return nil
	}
	if err := m.reserveFirst(iterations); err != nil {
		return err
	}
	r := m.regions[0]
	for t := range m.pool.Stages() {
		left := iterations * m.passes * (1 + m.pool.reserv)
		for _, part := range from.stages[t].parts {
			part = part[:min(len(part), left)]
			left -= len(part)
			if space := m.pool.grow(t, len(part)); r.IsLeader() {
				copy(space, part)
			}
		}
	}
	if err := r.Fence(); err != nil {
		return fmt.Errorf("cuts: %w", err)
	}
	return nil
}

// add appends the cuts of a stage, which all ranks have: one of each node writes them.
//
// Collective: all ranks call it.
func (m *cutMemory) add(stage int, cuts []float64) error {
	r := m.regions[len(m.regions)-1]
	space := m.pool.grow(stage, len(cuts))
	if r.IsLeader() {
		copy(space, cuts)
	}
	if err := r.Fence(); err != nil {
		return fmt.Errorf("cuts: %w", err)
	}
	return nil
}

// close frees the memory. The pool must not be used any more.
func (m *cutMemory) close() error {
	var errs []error
	for _, r := range m.regions {
		errs = append(errs, r.Close())
	}
	m.regions, m.pool = nil, nil
	return errors.Join(errs...)
}
