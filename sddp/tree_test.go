package sddp

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/need"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// treeLP writes the deterministic equivalent of a case, over its scenario tree or the subtrees below a
// stage, in the CPLEX LP format. It shares only the case and the inflows with the stage programs.
type treeLP struct {
	c         *Case
	noise     *Noise
	objective strings.Builder
	rows      strings.Builder
	bounds    strings.Builder
	nodes     int
	risk      Risk // of each node's successors

	root    []float64 // the state before the first nodes
	parents []int     // by node, -1 for the first ones
	inflows [][]float64
}

// before returns the inflow of a reservoir a number of stages before a node, 0 for its own.
func (l *treeLP) before(id, r, lag int) float64 {
	for ; lag > 0 && l.parents[id] >= 0; lag-- {
		id = l.parents[id]
	}
	if lag == 0 {
		return l.inflows[id][r]
	}
	at := len(l.c.Reservoirs) + lag - 1
	for _, past := range l.c.Inflows.PAR.Past[:r] {
		at += len(past)
	}
	return l.root[at]
}

// num writes a coefficient with its sign.
func num(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'g', 17, 64)
	if v < 0 {
		return " - " + s
	}
	return " + " + s
}

// below adds the nodes of stage t and their subtrees, each opening with its share of weight. The state
// before them is the constant v or, if v is nil, that of the node parent.
func (l *treeLP) below(t int, v []float64, parent int, weight float64) {
	if t == l.c.Stages {
		return
	}
	if !l.risk.Neutral() {
		l.riskBelow(t, v, parent, weight)
		return
	}
	for o := range l.noise.Openings(t) {
		l.node(t, v, parent, weight*l.noise.Weight(t, o), l.noise.Inflow(t, o))
	}
}

// column adds a variable.
func (l *treeLP) column(name string, cost, lo, hi float64) string {
	fmt.Fprintf(&l.objective, "%s %s\n", num(cost), name)
	if math.IsInf(hi, 1) {
		fmt.Fprintf(&l.bounds, "%s >= %.17g\n", name, lo)
	} else {
		fmt.Fprintf(&l.bounds, "%.17g <= %s <= %.17g\n", lo, name, hi)
	}
	return name
}

// network adds plants, deficit and lines of a node in a block, in which a MW costs money times its price.
func (l *treeLP) network(t, block int, money float64, name func(kind string, i int) string) {
	c, p := l.c, t%len(l.c.Periods)
	for b, bus := range c.Buses {
		row := ""
		for i, g := range c.Thermals {
			if g.Bus == b {
				row += " + " + l.column(name("g", i), money*g.CostPerMWh.At(p), g.MinMW.At(p), g.MaxMW.At(p))
			}
		}
		for i, r := range c.Reservoirs {
			if r.Bus == b {
				row += " + " + l.column(name("h", i), 0, 0, r.MaxGenerationMW.At(p))
			}
		}
		load := 0.0
		if bus.LoadMW != nil {
			load = bus.LoadMW[p]
			if bus.BlockLoadMW != nil {
				load = bus.BlockLoadMW[block][p]
			}
			for i, tier := range c.DeficitTiers {
				row += " + " + l.column(name(fmt.Sprintf("d%d_", i), b), money*tier.CostPerMWh, 0, tier.Share*load)
			}
			row += " + " + l.column(name("d", b), money*c.DeficitCost, 0, math.Inf(1))
		}
		for i, line := range c.Lines {
			out, in := name("f", i), name("r", i)
			if line.From == b {
				l.column(out, money*line.CostPerMWh.At(p), 0, line.DirectMW.At(p))
				l.column(in, money*line.CostPerMWh.At(p), 0, line.ReverseMW.At(p))
				row += " - " + out + " + " + in
			}
			if line.To == b {
				row += " + " + out + " - " + in
			}
		}
		if row != "" {
			fmt.Fprintf(&l.rows, "%s = %.17g\n", row, load)
		}
	}
}

func (l *treeLP) node(t int, v []float64, parent int, weight float64, inflow []float64) {
	id := l.nodes
	l.nodes++
	c, p := l.c, t%len(l.c.Periods)
	inflow = slices.Clone(inflow)
	l.inflows = append(l.inflows, inflow)
	if v != nil {
		l.root, parent = v, -1
	}
	l.parents = append(l.parents, parent)
	if c.Inflows != nil && c.Inflows.PAR != nil {
		for i := range inflow {
			inflow[i] += c.Inflows.PAR.Constant[p][i]
			for k, coef := range c.Inflows.PAR.Coefs[p][i] {
				inflow[i] += coef * l.before(id, i, k+1)
			}
		}
	}
	hours := c.HoursPerStage.At(p)
	name := func(kind string, i int) string { return fmt.Sprintf("%s%d_%d", kind, i, id) }
	blocks := c.Blocks
	if blocks == nil {
		blocks = []Block{{"all", 1}}
	}
	for k, block := range blocks {
		l.network(t, k, weight*hours*block.Share, func(kind string, i int) string { return name(fmt.Sprintf("%s%d_", kind, k), i) })
	}
	// Volume is counted in hm3, also over the stage: a flow of 1 m3/s is 0.0036 hm3 in an hour.
	for i, r := range c.Reservoirs {
		volume, energy := 1.0, hours // of one unit of flow over the stage, in the unit of storage and in MWh
		if r.Productivity > 0 {
			volume, energy = 0.0036*hours, r.Productivity*hours
		}
		l.column(name("v", i), 0, 0, r.MaxStorage)
		l.column(name("s", i), weight*c.SpillCost*energy, 0, math.Inf(1))
		q := l.column(name("q", i), 0, 0, math.Inf(1)) // outflow
		fmt.Fprintf(&l.rows, "%s - %s", q, name("s", i))
		for k, block := range blocks {
			fmt.Fprintf(&l.rows, "%s %s", num(-block.Share*hours/energy), name(fmt.Sprintf("h%d_", k), i))
		}
		l.rows.WriteString(" = 0\n")
		row, right := fmt.Sprintf("%s %s %s", name("v", i), num(volume), q), volume*inflow[i]
		if c.Inflows != nil && c.Inflows.PAR != nil {
			flow, stored, after := 0.0, 0.0, 0.0 // what water saves down the river: see sddp/model.md
			for at := i; at >= 0; {
				power, res := 1.0, c.Reservoirs[at]
				if res.Productivity > 0 {
					power = res.Productivity
				}
				flow += power * (c.DeficitCost + res.MinOutflowPenalty)
				stored = math.Max(stored, power*res.MinStoragePenalty)
				for _, cut := range c.Terminal {
					after = math.Max(after, -cut[1+at])
				}
				at = slices.IndexFunc(c.Reservoirs, func(next Reservoir) bool { return slices.Contains(next.Upstream, at) })
			}
			price := 2 * (hours*(flow+float64(c.Stages-t)*stored) + volume*after)
			lacking := l.column(name("lack", i), weight*price, 0, math.Inf(1))
			row += fmt.Sprintf("%s %s", num(-volume), lacking)
		}
		for _, up := range r.Upstream {
			row += fmt.Sprintf("%s %s", num(-volume), name("q", up))
		}
		if v != nil {
			right += v[i]
		} else {
			row += fmt.Sprintf(" - v%d_%d", i, parent)
		}
		fmt.Fprintf(&l.rows, "%s = %.17g\n", row, right)
		least := l.column(name("lv", i), weight*r.MinStoragePenalty*energy/volume, 0, math.Inf(1))
		fmt.Fprintf(&l.rows, "%s + %s >= %.17g\n", name("v", i), least, r.MinStorage.At(p))
		least = l.column(name("lq", i), weight*r.MinOutflowPenalty*energy, 0, math.Inf(1))
		fmt.Fprintf(&l.rows, "%s + %s >= %.17g\n", q, least, r.MinOutflow.At(p))
	}
	weight *= math.Pow(1/(1+c.DiscountRate), hours/8760)
	if t == c.Stages-1 && c.Terminal != nil {
		after := l.column(name("after", 0), weight, 0, math.Inf(1))
		for _, cut := range c.Terminal {
			row, right, at := after, cut[0], 1+len(c.Reservoirs)
			for i := range c.Reservoirs {
				row += fmt.Sprintf("%s %s", num(-cut[1+i]), name("v", i))
			}
			if c.Inflows != nil && c.Inflows.PAR != nil {
				for r, past := range c.Inflows.PAR.Past {
					for k := range past {
						right += cut[at] * l.before(id, r, k)
						at++
					}
				}
			}
			fmt.Fprintf(&l.rows, "%s >= %.17g\n", row, right)
		}
	}
	l.below(t+1, nil, id, weight)
}

// glpsol gives the program to GLPK and returns the optimum.
func (l *treeLP) glpsol(t *testing.T) float64 {
	t.Helper()
	glpsol := need.Program(t, "glpsol")
	in, out := filepath.Join(t.TempDir(), "tree.lp"), filepath.Join(t.TempDir(), "tree.sol")
	text := "Minimize\ncost:" + l.objective.String() + "Subject To\n" + l.rows.String() + "Bounds\n" + l.bounds.String() + "End\n"
	if err := os.WriteFile(in, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var log []byte
	for _, how := range []string{"--presol", "--nopresol"} { // GLPK 5.0 calls few feasible programs infeasible after its presolver
		var err error
		if log, err = exec.Command(glpsol, how, "--lp", in, "-w", out).CombinedOutput(); err != nil {
			t.Fatalf("glpsol: %v\n%s", err, log)
		}
		solution, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(solution) {
			f := strings.Fields(string(line)) // s bas rows columns primal dual objective
			if len(f) == 7 && f[0] == "s" && f[1] == "bas" && f[4] == "f" && f[5] == "f" {
				v, err := strconv.ParseFloat(f[6], 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
	}
	t.Fatalf("glpsol found no optimum:\n%s", log)
	return 0
}

// optimum returns the optimal expected cost over the whole tree.
func optimum(t *testing.T, c *Case, noise *Noise) float64 {
	t.Helper()
	l := &treeLP{c: c, noise: noise}
	l.below(0, c.initialState(), 0, 1)
	return l.glpsol(t)
}

// costToGo returns the optimal expected cost of all stages after a stage that ends with storage v.
func costToGo(t *testing.T, c *Case, noise *Noise, stage int, v []float64) float64 {
	t.Helper()
	l := &treeLP{c: c, noise: noise}
	l.below(stage+1, v, 0, 1)
	return l.glpsol(t)
}

// trained trains with one rank.
func trained(t *testing.T, c *Case, opt Options) *Training {
	t.Helper()
	var out *Training
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) (err error) {
		out, err = Train(context.Background(), world, c, opt)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// within reports whether two numbers agree to 1e-6 of their size.
func within(a, b float64) bool {
	return math.Abs(a-b) <= 1e-6*math.Max(1, math.Max(math.Abs(a), math.Abs(b)))
}

// The lower bound rises to the optimum of the deterministic equivalent. Over all paths of the tree the
// policy costs as much. No cut exceeds the true cost-to-go, at trial points and at random points.
func TestBoundsEqualDeterministicEquivalent(t *testing.T) {
	for _, kind := range []string{lp.Embedded, lp.CLP} {
		t.Run(kind, func(t *testing.T) { againstDeterministicEquivalent(t, kind) })
	}
}

func againstDeterministicEquivalent(t *testing.T, kind string) {
	newSolver := solvers(t, kind)
	cases, step := map[string]int{lp.Embedded: 67, lp.CLP: 34}[kind], 1
	if testing.Short() { // each feature once; with Clp none, and all but one
		step = map[string]int{lp.Embedded: 5, lp.CLP: 33}[kind]
	}
	for n := 0; n < cases; n += step {
		rng := rand.New(rand.NewPCG(uint64(n), 77))
		name, c := featured(n, rng)
		t.Run(name, func(t *testing.T) {
			if err := c.checkStages("case"); err != nil {
				t.Fatal(err)
			}
			opt := Options{Iterations: 80, Passes: 6, Openings: 2 + rng.IntN(2), Seed: uint64(n), Solver: kind, CutSelection: n >= 12 && n%2 == 1, MultiCut: n >= 12 && n%4 == 0}
			noise := NewNoise(c, opt.Seed, opt.Openings)
			want := optimum(t, c, noise)
			tr := trained(t, c, opt)
			last := 0.0
			for _, it := range tr.Iterations {
				if it.LowerBound < last {
					t.Errorf("iteration %d: the lower bound fell from %v to %v", it.Number, last, it.LowerBound)
				}
				if last = it.LowerBound; last > want && !within(last, want) {
					t.Errorf("iteration %d: the lower bound %v is above the optimum %v", it.Number, last, want)
				}
			}
			if !within(last, want) {
				t.Errorf("the lower bound ends at %.10g, the optimum is %.10g", last, want)
			}
			p, err := newPlanner(c, noise, tr.Policy.Pool, newSolver)
			if err != nil {
				t.Fatal(err)
			}
			states := make([][][]float64, c.Stages)
			if got := expectedCost(t, p, states); !within(got, want) {
				t.Errorf("over all paths the policy costs %.10g, the optimum is %.10g", got, want)
			}
			for s := range c.Stages - 1 {
				points := states[s][:min(3, len(states[s]))]
				for range 3 {
					v := c.maxState()
					for i := range v {
						v[i] *= rng.Float64()
					}
					points = append(points, v)
				}
				for _, v := range points {
					truth := costToGo(t, c, noise, s, v)
					if cuts := tr.Policy.Pool.Value(s, v); cuts > truth && !within(cuts, truth) {
						t.Errorf("stage %d at %v: a cut says %.10g, the cost-to-go is %.10g", s+1, v, cuts, truth)
					}
				}
			}
		})
	}
}

// expectedCost returns the mean cost of the policy over all paths of the tree. It appends the storage at
// the end of every stage to states.
func expectedCost(t *testing.T, p *planner, states [][][]float64) float64 {
	t.Helper()
	paths := 1
	for s := range p.c.Stages {
		paths *= p.noise.Openings(s)
	}
	sum := 0.0
	for path := range paths {
		rest, weight := path, 1.0
		cost, err := p.forward(context.Background(), func(s int) []float64 {
			k := rest % p.noise.Openings(s)
			rest /= p.noise.Openings(s)
			weight *= p.noise.Weight(s, k)
			return p.noise.Inflow(s, k)
		}, func(s *stage) {
			states[s.t] = append(states[s.t], append([]float64(nil), s.end(p.c)...))
		})
		if err != nil {
			t.Fatal(err)
		}
		sum += weight * cost
	}
	return sum
}

// The toy case is solved by hand in its README.
func TestToyEqualsSolutionByHand(t *testing.T) {
	c := readShipped(t, "toy")
	tr := trained(t, c, Options{Iterations: 5, Passes: 2})
	const cost = 11800
	if !within(tr.Policy.LowerBound, cost) || !within(tr.Last().Upper.Mean, cost) {
		t.Errorf("lower bound %v, upper bound %v, want %v", tr.Policy.LowerBound, tr.Last().Upper.Mean, cost)
	}
	// Q3 and Q2 of the README at the storages of the policy.
	if got := tr.Policy.Pool.Value(1, []float64{40}); !within(got, 9200) {
		t.Errorf("after stage 2 with a full lake the cost is %v, want 9200", got)
	}
	if got := tr.Policy.Pool.Value(0, []float64{40}); !within(got, 11000) {
		t.Errorf("after stage 1 with a full lake the cost is %v, want 11000", got)
	}
	var sim *Simulation
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) (err error) {
		sim, err = Simulate(context.Background(), world, c, tr.Policy, SimulateOptions{Scenarios: 3})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range []struct{ hydro, thermal, deficit, storage, cost, marginal float64 }{
		{40, 40, 0, 40, 800, 20}, {30, 60, 0, 40, 1800, 80}, {50, 90, 5, 0, 9200, 1000},
	} {
		st := sim.Stages[s]
		if !within(st.Hydro[0], want.hydro) || !within(st.Thermal[0], want.thermal) || !within(st.Deficit[0], want.deficit) ||
			!within(st.Storage[0], want.storage) || !within(st.Cost, want.cost) || !within(st.MarginalCost[0], want.marginal) {
			t.Errorf("stage %d: got %+v, want %+v", s+1, st, want)
		}
	}
}
