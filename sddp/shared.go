package sddp

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// All ranks read the inflows and the cuts. Every node has one copy of them (cohort.SharedRegion), which
// its ranks fill: each rank a part, or the leader everything. Without shared memory each rank has a copy
// and is its own leader. After a fence all ranks read.
//
// Nothing may refer to a region after it is closed, so a Policy has a copy of its cuts.

// region is shared memory for inflows or cuts.
type region = cohort.SharedRegion[float64]

// shareNoise is NewNoise with one copy of the inflows per node, valid while the region is open. Each rank
// of a node draws the inflows of a block of stages. If nodes draw different inflows, all ranks return an
// error: the result would depend on the distribution of the work.
//
// Collective: all ranks of world call it.
func shareNoise(world *cohort.Comm, w *crew, c *Case, seed uint64, openings int) (*Noise, *region, error) {
	n := noiseOf(c, seed, openings)
	r, err := cohort.NewSharedRegion[float64](world, n.numbers())
	if err != nil {
		return nil, nil, fmt.Errorf("inflows: %w", err)
	}
	if n.inflow, err = r.Slice(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("inflows: %w", err), r.Close())
	}
	lo, hi := cohort.Block(c.Stages, r.Node().Size(), r.Node().Rank())
	failed := w.each(hi-lo, func(_, i int) error { n.draw(c, lo+i); return nil })
	if err := errors.Join(failed, r.Fence()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("inflows: %w", err), r.Close())
	}
	if err := n.compare(world); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return n, r, nil
}

// compare returns an error on all ranks unless all ranks have the same inflows.
//
// Collective: all ranks of world call it.
func (n *Noise) compare(world *cohort.Comm) error {
	n.digest = n.sum(0)
	return newTeam(world).same("inflows, because their processors round differently; use nodes of one kind", fingerprint(n.digest))
}

// cutMemory is the pool of a training in shared regions. A region cannot grow, and a training may stop
// long before its last iteration. So there are several regions, each as large as all before it.
type cutMemory struct {
	world      *cohort.Comm
	pool       *Pool
	passes     int // cuts per list and iteration, at most
	iterations int // of the training, at most
	room       int // iterations that the regions have room for
	first      int // numbers that the first region has room for
	regions    []*region
}

// firstCuts is the size of the first region in numbers, a mebibyte. It is larger if an iteration needs more.
const firstCuts = 1 << 17

// newCutMemory returns the memory of an empty pool. reserve allocates it. Before the first iteration there may be
// up to a number of seeds in each list; their room is that of iterations with negative numbers.
func newCutMemory(world *cohort.Comm, pool *Pool, passes, iterations, seeds int) *cutMemory {
	m := &cutMemory{
		world: world, pool: pool, passes: passes, iterations: iterations, first: firstCuts,
	}
	m.room = -((seeds + passes - 1) / passes)
	m.first = max(m.first, m.each()*-m.room)
	return m
}

// each returns how many numbers the cuts of an iteration have, at most.
func (m *cutMemory) each() int { return len(m.pool.lists) * m.passes * (1 + m.pool.reserv) }

// reserve makes room for an iteration.
//
// Collective: all ranks call it, for every iteration in order.
func (m *cutMemory) reserve(iteration int) error {
	if iteration < m.room || len(m.pool.lists) == 0 {
		return nil
	}
	width := 1 + m.pool.reserv
	more := min(max(m.room, m.first/m.each(), 1), m.iterations-m.room)
	r, err := cohort.NewSharedRegion[float64](m.world, more*m.each())
	if err != nil {
		return fmt.Errorf("memory for %d more iterations: %w", more, err)
	}
	m.regions = append(m.regions, r)
	all, err := r.Slice()
	if err != nil {
		return err
	}
	m.room += more
	for i := range m.pool.lists {
		n := more * m.passes * width
		m.pool.extend(i, all[i*n:i*n:(i+1)*n])
	}
	return nil
}

// reserveFirst makes room for a number of iterations whose cuts exist already, and for more.
//
// Collective: all ranks call it, before anything else.
func (m *cutMemory) reserveFirst(iterations int) error {
	m.first = max(m.first, (iterations-min(m.room, 0))*m.each())
	return m.reserve(iterations - 1)
}

// add appends cuts to a list, which all ranks have. The leader of each node writes them.
//
// Collective: all ranks call it.
func (m *cutMemory) add(list int, cuts []float64) error {
	m.put(list, cuts)
	return m.fence()
}

// put is add without the fence, before which no rank may read the cuts.
func (m *cutMemory) put(list int, cuts []float64) {
	space := m.pool.grow(list, len(cuts))
	if m.regions[len(m.regions)-1].IsLeader() {
		copy(space, cuts)
	}
}

// fence lets all ranks read what put has appended.
//
// Collective: all ranks call it.
func (m *cutMemory) fence() error {
	if err := m.regions[len(m.regions)-1].Fence(); err != nil {
		return fmt.Errorf("cuts: %w", err)
	}
	return nil
}

// close frees the memory and with it the pool.
func (m *cutMemory) close() error {
	var errs []error
	for _, r := range m.regions {
		errs = append(errs, r.Close())
	}
	m.regions, m.pool = nil, nil
	return errors.Join(errs...)
}
