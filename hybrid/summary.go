package hybrid

import (
	"fmt"

	"github.com/cohort-hpc/cohort/topo"
)

// notes lists what could be better on this rank.
func (e *Env) notes(plan *topo.Plan) []string {
	var notes []string
	add := func(note string) {
		if note != "" {
			notes = append(notes, note)
		}
	}
	add(plan.Note())
	if plan.Policy != topo.None {
		if err := e.Pool.Denied(); err != nil {
			add(err.Error())
		}
	}
	for _, s := range e.Solvers {
		if s.Differs() {
			add(s.String())
		}
	}
	return notes
}

// share is what a rank tells the others about its part of the processors.
type share struct {
	Threads  int
	Crowding topo.Crowding
	Partly   bool // pinned to processors of which other ranks may use some
}

// summarize fills in the summary from this rank's data and the shares of all ranks.
func (e *Env) summarize(plan *topo.Plan, all []share, notes []string) {
	s := e.Topology.Summary()
	s.Threads, s.Policy, s.Notes = e.Pool.Workers(), plan.Policy, notes
	rank := e.World.Rank()
	if rank == 0 {
		s.Sets = plan.Sets[e.LocalRank][:s.Threads]
	}
	fewest, most := all[0].Threads, all[0].Threads
	var crowded, partly []int
	for r, s := range all {
		fewest, most = min(fewest, s.Threads), max(most, s.Threads)
		if s.Crowding == topo.TakingTurns {
			crowded = append(crowded, r)
		}
		if s.Partly {
			partly = append(partly, r)
		}
	}
	if fewest < most {
		s.Notes = append(s.Notes, fmt.Sprintf("ranks have %d to %d threads", fewest, most))
	}
	if len(crowded) > 0 && all[rank].Crowding != topo.TakingTurns {
		s.Notes = append(s.Notes, fmt.Sprintf("more threads than processors for ranks %s", topo.NewCPUSet(crowded...)))
	}
	if len(partly) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("ranks %s share some of their processors, so threads may compete for them: bind all ranks of a node, or none",
			topo.NewCPUSet(partly...)))
	}
	e.Summary = s
}
