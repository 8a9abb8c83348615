package sddp

import (
	"fmt"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// open opens a kind of solver (lp.Open) for the stages of a case: the same on all ranks, for two
// solvers, or two versions of one, need not find the same of several optimal bases.
//
// Collective: all ranks call it, and an error is one of all.
func (t *team) open(kind string, c *Case) (func() lp.Solver, lp.Info, error) {
	newSolver, info, err := lp.Open(kind, c.rows())
	if err := t.together("solver", err); err != nil {
		return nil, info, err
	}
	if err := t.same("solver", fingerprint(info.String())); err != nil {
		return nil, info, fmt.Errorf("%w: this one has %v; %s needs no library", err, info, lp.Embedded)
	}
	return newSolver, info, nil
}

// rows returns the number of rows of a stage without cuts.
func (c *Case) rows() int { return len(c.Buses) + len(c.Reservoirs) }
