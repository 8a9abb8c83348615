package sddp

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// SimulateOptions configure a simulation.
type SimulateOptions struct {
	Scenarios int // 0 means 1000
	Sampling  Sampling
	Paths     Paths // if not nil, the inflows of the scenarios, in place of Scenarios and Sampling
	// Seen, if not nil, is called on this rank with the stages of every scenario, in order. Their figures have
	// no bands. It must not keep them.
	Seen func(scenario int, stages []StageResult)
	// Solver, Threads, Pin and Env are as in [Options].
	Solver  string
	Threads int
	Pin     string
	Env     *hybrid.Env
}

// simulateChunk is the number of scenarios between two exchanges. It bounds the memory, and the time
// until a rank learns that another one failed.
const simulateChunk = 512

// Simulate runs a policy over scenarios, which depend only on the policy's seed and their number.
//
// Collective: all ranks of world call it with the same arguments; only the threads may differ.
//
// Errors: those of the linear programs; [ErrPeer] if only another rank failed.
//
// Deadlines: when ctx ends on one rank, the calls of all ranks end with an error.
func Simulate(ctx context.Context, world *cohort.Comm, c *Case, p *Policy, opt SimulateOptions) (out *Simulation, err error) {
	switch {
	case opt.Paths != nil:
		opt.Scenarios, opt.Sampling = len(opt.Paths), ""
	case opt.Scenarios == 0:
		opt.Scenarios = 1000
	}
	if opt.Scenarios < 2 || opt.Scenarios > maxScenarios {
		return nil, fmt.Errorf("simulate: scenarios: got %d, want a whole number from 2 to %d", opt.Scenarios, maxScenarios)
	}
	if opt.Solver == "" {
		opt.Solver = lp.Auto
	}
	if opt.Sampling, err = opt.Sampling.checked(c); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if opt.Paths != nil {
		opt.Sampling = Given
	}
	sim := &simulator{team: newTeam(world.WithContext(ctx)), c: c, policy: p, opt: opt}
	if sim.crew, err = newCrew(sim.world, opt.Threads, opt.Pin, opt.Env); err != nil {
		return nil, err
	}
	defer func() { // also after a panic
		if e := sim.crew.close(); err == nil && e != nil {
			out, err = nil, e
		}
	}()
	err = sim.run(func() (err error) {
		out, err = sim.simulate(ctx)
		return err
	})
	return out, err
}

// simulator is one rank's part of a simulation.
type simulator struct {
	*team
	*crew
	c       *Case
	policy  *Policy
	opt     SimulateOptions
	workers []*planner
}

// simulate does the work of this rank.
func (sim *simulator) simulate(ctx context.Context) (out *Simulation, err error) {
	c, p := sim.c, sim.policy
	key := fingerprint(fmt.Sprint(c.SHA256(), p.Pool.SHA256(), p.Seed, p.Openings, sim.opt.Scenarios, sim.opt.Sampling, sim.opt.Paths, sim.opt.Solver))
	if err := sim.same("case, policy and options", key); err != nil {
		return nil, err
	}
	noise, inflows, err := shareNoise(sim.world, sim.crew, c, sim.policy.Seed, sim.policy.Openings)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := inflows.Close(); err == nil && e != nil {
			out, err = nil, e
		}
	}()
	newSolver, _, err := sim.open(sim.opt.Solver, c)
	if err != nil {
		return nil, err
	}
	sim.workers, err = forWorkers(sim.crew, func() (*planner, error) { return newPlanner(c, noise, sim.policy.Pool, newSolver) })
	if err := sim.together("linear programs", err); err != nil {
		return nil, err
	}
	path := pathWidth(c)
	sum := newSummer(c, sim.opt.Scenarios)
	all := make([]float64, min(simulateChunk, sim.opt.Scenarios)*path)
	for first := 0; first < sim.opt.Scenarios; first += simulateChunk {
		n := min(simulateChunk, sim.opt.Scenarios-first)
		lo, hi := sim.block(sim.rank, n)
		failed := sim.each(hi-lo, func(worker, i int) error {
			return sim.scenario(ctx, sim.workers[worker], first+lo+i, all[(lo+i)*path:(lo+i+1)*path])
		})
		if err := sim.share("simulated scenarios", all[:n*path], n, path, failed); err != nil {
			return nil, err
		}
		for i := range n {
			sum.add(all[i*path : (i+1)*path])
			if sim.opt.Seen != nil {
				sim.opt.Seen(first+i, stagesOf(c, all[i*path:(i+1)*path]))
			}
		}
	}
	return sum.result(sim.opt.Sampling), nil
}

// scenario simulates a scenario and writes it to dst: its cost, and a record for each stage.
func (sim *simulator) scenario(ctx context.Context, w *planner, scenario int, dst []float64) (err error) {
	dst[0], err = w.forward(ctx, func(t int) []float64 {
		if sim.opt.Paths == nil {
			w.noise.onPath(w.inflow, sim.opt.Sampling, scenario, t)
		} else {
			copy(w.inflow, sim.opt.Paths[scenario][t])
			sim.c.noiseOf(w.inflow, w.before, t)
		}
		return w.inflow
	}, func(s *stage) {
		s.record(sim.c, dst)
	})
	if err != nil {
		return fmt.Errorf("scenario %d: %w", scenario+1, err)
	}
	return nil
}
