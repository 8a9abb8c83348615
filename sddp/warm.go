package sddp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// A training can begin with the policy of another one (Options.Warm). If the cost after each stage is the
// same function in both, the old cuts are valid, and the training begins with them: then only the initial
// storage and the inflows up to the first stage differ. Otherwise old cuts may exceed the new costs, for example where the load has fallen. So
// they only guide the forward passes of the first iterations, which then visit storages as a good policy
// does, and all cuts are computed anew there.

// guidedIterations is how many iterations an old policy guides. More did not help on brazil4 with 2 % more load:
// from then on the new cuts lead to better storages than the old ones.
const guidedIterations = 2

// checkWarm returns an error unless the policy to begin with fits the case and the options.
func (o Options) checkWarm(c *Case) error {
	w := o.Warm
	switch {
	case w == nil:
		return nil
	case w.Pool.Stages() != c.Stages-1 || w.Pool.reserv != c.states() || !slices.Equal(w.Reservoirs, c.reservoirNames()):
		return errors.New("the policy has other stages or reservoirs than the case")
	case w.MultiCut != o.MultiCut:
		return fmt.Errorf("the policy was trained with multi-cut %v, and this training has multi-cut %v; both must have the same", w.MultiCut, o.MultiCut)
	case !w.Pool.futures.same(o.futures(c)):
		return errors.New("with multi-cut the policy and this training must have the same number of openings in each stage")
	}
	return nil
}

// futureOf returns a hash of all that the cost after a stage depends on.
func futureOf(c *Case, noise *Noise, risk Risk) string {
	core := *c
	core.Reservoirs = slices.Clone(c.Reservoirs)
	for r := range core.Reservoirs {
		core.Reservoirs[r].InitialStorage, core.Reservoirs[r].FirstInflow = 0, nil
	}
	if par := c.par(); par != nil {
		later := *par
		later.Past = nil
		for _, past := range par.Past {
			later.Past = append(later.Past, make([]float64, len(past)))
		}
		core.Inflows = &InflowModel{PAR: &later}
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(core.SHA256(), noise.sum(1), risk.Lambda, risk.Alpha)))
	return hex.EncodeToString(sum[:])
}

// seeds returns the cuts that the training begins with, or nil.
func (tr *trainer) seeds() *Pool {
	if old := tr.opt.Warm; old != nil && old.FutureSHA256 == futureOf(tr.c, tr.noise, tr.opt.Risk) {
		return old.Pool
	}
	return nil
}

// mostSeeds returns the largest number of cuts of a list that the training begins with.
func mostSeeds(from *Pool) int {
	if from == nil {
		return 0
	}
	return slices.Max(append(from.lens(), 0)) // a case of one stage has no lists
}

// plant adds the cuts that the training begins with, before the first iteration.
//
// Collective: all ranks call it.
func (tr *trainer) plant() error {
	from := tr.seeds()
	if from == nil || len(tr.its) > 0 {
		return nil
	}
	if err := tr.memory.reserve(-1); err != nil {
		return err
	}
	for i, l := range from.lists {
		for _, part := range l.parts {
			if err := tr.memory.add(i, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// guide returns the cuts that forward passes of an iteration use.
func (tr *trainer) guide(iteration int) *Pool {
	if tr.opt.Warm != nil && iteration < guidedIterations && tr.seeds() == nil {
		return tr.opt.Warm.Pool
	}
	return tr.pool
}
