package sddp

import (
	"fmt"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// open opens a kind of solver (lp.Open) for the stages of a case. It must be the same on all ranks: of
// several optimal bases, two solvers or two versions of one may find different ones.
//
// Collective: all ranks call it. If one rank fails, all return an error.
func (t *team) open(kind string, c *Case) (func() lp.Solver, lp.Info, error) {
	newSolver, info, err := lp.Open(kind, c.rows())
	if err := t.together("solver", err); err != nil {
		return nil, info, err
	}
	if err := t.same("solver", fingerprint(info.String())); err != nil {
		return nil, info, fmt.Errorf("%w: this one has %v; install one version on all nodes, or use solver %s", err, info, lp.Embedded)
	}
	return newSolver, info, nil
}

// rows returns how many rows a stage has without cuts.
func (c *Case) rows() int {
	n := max(len(c.Blocks), 1)*len(c.Buses) + len(c.Reservoirs)
	for _, r := range c.Reservoirs {
		n += r.limits()
	}
	return n
}

// limits returns how many limits a reservoir has that are rows.
func (r *Reservoir) limits() int {
	return min(len(r.MinStorage), 1) + min(len(r.MinOutflow), 1)
}
