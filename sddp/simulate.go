package sddp

import (
	"context"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// SimulateOptions configure a simulation.
type SimulateOptions struct {
	Scenarios int // 0 means 1000
	// Outside draws new inflows from the distributions of the case, instead of using the openings of the
	// training.
	Outside bool
	// Solver, Threads, Pin, Env and Recovery are as in [Options].
	Solver   string
	Threads  int
	Pin      string
	Env      *hybrid.Env
	Recovery *Recovery // after a loss the simulation starts again
}

// Simulation is the outcome of a policy over many scenarios. It is the same on all ranks, for any number
// of ranks and threads.
type Simulation struct {
	Outside bool
	Cost    Estimate  // of the whole horizon
	Costs   []float64 // the same by scenario
	Stages  []StageResult
}

// Quantile returns the q-quantile of the costs of the whole horizon.
//
// Local.
func (s *Simulation) Quantile(q float64) float64 {
	return quantile(slices.Sorted(slices.Values(s.Costs)), q)
}

// CVaR returns the mean cost of the costliest scenarios, a share alpha of all.
//
// Local.
func (s *Simulation) CVaR(alpha float64) float64 {
	weights := make([]float64, len(s.Costs))
	for i := range weights {
		weights[i] = 1 / float64(len(weights))
	}
	Risk{1, alpha}.weights(weights, s.Costs)
	mean := 0.0
	for i, w := range weights {
		mean += w * s.Costs[i]
	}
	return mean
}

// StageResult holds the means over the scenarios for a stage: power in MW, water in the units of
// the case, the marginal cost of load per MWh.
type StageResult struct {
	Cost         float64
	DeficitShare float64 // share of the scenarios with a deficit at any bus

	Load                                  []float64    // by bus
	Thermal, Hydro, Deficit, MarginalCost []float64    // by bus
	Inflow, Storage, Spill                []float64    // by reservoir; storage at the end
	StorageBand                           [][3]float64 // by reservoir: quantiles 0.1, 0.5 and 0.9 of the storage
	Flow                                  []float64    // by line; negative if it flows from To to From
}

// NetImport returns what lines bring to a bus, less what they take away, in MW.
//
// Local.
func (st *StageResult) NetImport(c *Case, bus int) float64 {
	net := 0.0
	for i, l := range c.Lines {
		if l.From == bus {
			net -= st.Flow[i]
		}
		if l.To == bus {
			net += st.Flow[i]
		}
	}
	return net
}

// simulateChunk is the number of scenarios between two exchanges. It bounds the memory, and the time
// until a rank learns that another one failed.
const simulateChunk = 512

// record is the layout of the numbers recorded for a stage of a scenario.
type record struct{ buses, reserv, lines int }

// width returns how many numbers a record has.
func (r record) width() int { return 1 + 4*r.buses + 3*r.reserv + r.lines }

// split returns the parts of a record: the cost, then figures by bus, by reservoir and by line.
func (r record) split(w []float64) (cost *float64, bus [4][]float64, reserv [3][]float64, flow []float64) {
	cost, w = &w[0], w[1:]
	for i := range bus {
		bus[i], w = w[:r.buses:r.buses], w[r.buses:]
	}
	for i := range reserv {
		reserv[i], w = w[:r.reserv:r.reserv], w[r.reserv:]
	}
	return cost, bus, reserv, w
}

// Simulate runs a policy over scenarios, which depend only on the policy's seed and their number.
//
// Collective: all ranks of world call it with the same arguments; only the threads may differ.
//
// Errors: those of the linear programs; [ErrPeer] if only another rank failed.
//
// Deadlines: when ctx ends on one rank, the calls of all ranks end with an error.
func Simulate(ctx context.Context, world *cohort.Comm, c *Case, p *Policy, opt SimulateOptions) (out *Simulation, err error) {
	if opt.Scenarios == 0 {
		opt.Scenarios = 1000
	}
	if opt.Scenarios < 2 || opt.Scenarios > maxScenarios {
		return nil, fmt.Errorf("simulate: scenarios: got %d, want a whole number from 2 to %d", opt.Scenarios, maxScenarios)
	}
	if opt.Solver == "" {
		opt.Solver = lp.Auto
	}
	sim := &simulator{c: c, policy: p, opt: opt, rec: record{len(c.Buses), len(c.Reservoirs), len(c.Lines)}}
	if sim.crew, err = newCrew(opt.Recovery.World(world).WithContext(ctx), opt.Threads, opt.Pin, opt.Env); err != nil {
		return nil, err
	}
	defer func() { // also after a panic
		if e := sim.crew.close(); err == nil && e != nil {
			out, err = nil, e
		}
	}()
	err = sim.run(func() error {
		return opt.Recovery.Do(world, func(world *cohort.Comm) (err error) {
			out, err = sim.simulate(ctx, world.WithContext(ctx))
			return err
		})
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
	rec     record
	workers []*player
}

// player is the state of a worker in a simulation.
type player struct {
	*planner
	inflow []float64 // of the current stage
}

// simulate does the work of this rank.
func (sim *simulator) simulate(ctx context.Context, world *cohort.Comm) (out *Simulation, err error) {
	sim.team = newTeam(world)
	c, p := sim.c, sim.policy
	key := fingerprint(fmt.Sprint(c.SHA256(), p.Pool.SHA256(), p.Seed, p.Openings, sim.opt.Scenarios, sim.opt.Outside, sim.opt.Solver, sim.opt.Recovery != nil))
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
	sim.workers, err = forWorkers(sim.crew, func() (*player, error) {
		plan, err := newPlanner(c, noise, sim.policy.Pool, newSolver)
		return &player{plan, make([]float64, len(c.Reservoirs))}, err
	})
	if err := sim.together("linear programs", err); err != nil {
		return nil, err
	}
	path := c.Stages * sim.rec.width()
	sum := newSummer(c, sim.rec, sim.opt.Scenarios)
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
		}
	}
	return sum.result(sim.opt.Outside), nil
}

// scenario simulates a scenario and writes its records to dst.
func (sim *simulator) scenario(ctx context.Context, w *player, scenario int, dst []float64) error {
	width := sim.rec.width()
	_, err := w.forward(ctx, func(t int) []float64 {
		if sim.opt.Outside {
			w.noise.outside(w.inflow, scenario, t)
		} else {
			copy(w.inflow, w.noise.Inflow(t, w.noise.path(scenario, t)))
		}
		return w.inflow
	}, func(s *stage) {
		s.record(sim.c, sim.rec, w.inflow, dst[s.t*width:(s.t+1)*width])
	})
	if err != nil {
		return fmt.Errorf("scenario %d: %w", scenario+1, err)
	}
	return nil
}

// record writes the last solution of a stage to w.
func (s *stage) record(c *Case, rec record, inflow, w []float64) {
	clear(w)
	cost, bus, reserv, flow := rec.split(w)
	thermal, hydro, deficit, marginal := bus[0], bus[1], bus[2], bus[3]
	*cost = s.cost()
	for i, g := range c.Thermals {
		thermal[g.Bus] += s.thermalMW(i)
	}
	for i, r := range c.Reservoirs {
		hydro[r.Bus] += s.hydroMW(i)
		reserv[2][i] = s.spilled(i)
	}
	copy(reserv[0], inflow)
	copy(reserv[1], s.end(c))
	for b := range c.Buses {
		deficit[b] = s.deficitMW(b)
		marginal[b] = s.marginalCost(b)
	}
	for i := range c.Lines {
		flow[i] = s.flowMW(i)
	}
}

// summer sums the records of scenarios, in the order of the scenarios.
type summer struct {
	c       *Case
	rec     record
	whole   []float64   // costs of the whole horizon, by scenario
	total   []float64   // by stage: sums of the records
	short   []int       // by stage: scenarios with a deficit
	costs   tally       // the sum of whole
	storage [][]float64 // by stage and reservoir: of every scenario
}

// newSummer returns a summer for n scenarios.
func newSummer(c *Case, rec record, n int) *summer {
	s := &summer{c: c, rec: rec, total: make([]float64, c.Stages*rec.width()), short: make([]int, c.Stages)}
	for range c.Stages * rec.reserv {
		s.storage = append(s.storage, make([]float64, 0, n))
	}
	return s
}

// shortage is the smallest deficit, in MW, that counts as one. It exceeds the solver's tolerance.
const shortage = 1e-3

// add adds a scenario.
func (s *summer) add(path []float64) {
	for i, x := range path {
		s.total[i] += x
	}
	whole := 0.0
	for t := range s.c.Stages {
		cost, bus, reserv, _ := s.rec.split(path[t*s.rec.width() : (t+1)*s.rec.width()])
		whole += *cost
		for r, v := range reserv[1] {
			at := t*s.rec.reserv + r
			s.storage[at] = append(s.storage[at], v)
		}
		if slices.Max(bus[2]) > shortage {
			s.short[t]++
		}
	}
	s.costs.add(whole)
	s.whole = append(s.whole, whole)
}

// result returns the means.
func (s *summer) result(outside bool) *Simulation {
	out := &Simulation{Outside: outside, Cost: s.costs.estimate(), Costs: s.whole}
	for i := range s.total {
		s.total[i] /= float64(len(s.whole))
	}
	for t := range s.c.Stages {
		cost, bus, reserv, flow := s.rec.split(s.total[t*s.rec.width() : (t+1)*s.rec.width()])
		st := StageResult{
			Cost: *cost, DeficitShare: float64(s.short[t]) / float64(len(s.whole)),
			Thermal: bus[0], Hydro: bus[1], Deficit: bus[2], MarginalCost: bus[3],
			Inflow: reserv[0], Storage: reserv[1], Spill: reserv[2], Flow: flow,
		}
		for b := range s.c.Buses {
			st.Load = append(st.Load, s.c.load(t, b))
		}
		for r := range s.rec.reserv {
			v := s.storage[t*s.rec.reserv+r]
			slices.Sort(v)
			st.StorageBand = append(st.StorageBand, [3]float64{quantile(v, 0.1), quantile(v, 0.5), quantile(v, 0.9)})
		}
		out.Stages = append(out.Stages, st)
	}
	return out
}

// quantile returns the q-quantile of sorted values by linear interpolation.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
