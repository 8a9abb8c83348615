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
		if err := e.Pool.MemoryPolicy(); err != nil {
			add("memory policy not changed: " + err.Error())
		}
		add(remoteMemory(e.Machine, plan.Sets[e.LocalRank][:e.Pool.Workers()]))
	}
	for _, s := range e.Solvers {
		if s.Differs() {
			add(s.String())
		}
	}
	return notes
}

// summarize fills in the summary from this rank's data and the votes of all ranks.
func (e *Env) summarize(plan *topo.Plan, votes []vote, notes []string) {
	s := e.Topology.Summary()
	s.Threads, s.Policy, s.Notes = e.Pool.Workers(), plan.Policy, notes
	rank := e.World.Rank()
	if rank == 0 {
		s.Sets = plan.Sets[e.LocalRank][:s.Threads]
	}
	fewest, most := votes[0].threads, votes[0].threads
	var crowded, partly []int
	for r, v := range votes {
		fewest, most = min(fewest, v.threads), max(most, v.threads)
		if topo.Crowding(v.crowding) == topo.TakingTurns {
			crowded = append(crowded, r)
		}
		if v.partly != 0 {
			partly = append(partly, r)
		}
	}
	if fewest < most {
		s.Notes = append(s.Notes, fmt.Sprintf("ranks have %d to %d threads", fewest, most))
	}
	if len(crowded) > 0 && topo.Crowding(votes[rank].crowding) != topo.TakingTurns {
		s.Notes = append(s.Notes, fmt.Sprintf("more threads than processors for ranks %s", topo.NewCPUSet(crowded...)))
	}
	if len(partly) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("ranks %s share some of their processors, so threads may compete for them: bind all ranks of a node, or none",
			topo.NewCPUSet(partly...)))
	}
	e.Summary = s
}
