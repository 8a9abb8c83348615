package sddp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// penalized returns a random case with a PAR and all other features, whose penalties and values of stored water
// exceed the cost of a deficit many times.
func penalized(n int, rng *rand.Rand) *Case {
	_, c := featured(12+2*len(features)+1, rng)
	for i := range c.Reservoirs {
		c.Reservoirs[i].MinOutflowPenalty *= 30 * rng.Float64()
		c.Reservoirs[i].MinStoragePenalty *= 30 * rng.Float64()
	}
	for _, cut := range c.Terminal {
		for i := range c.Reservoirs {
			cut[1+i] *= 30 * float64(n%2)
		}
	}
	return c
}

// No penalty and no value of stored water pays for water that does not exist: a stage has missing water only if an
// inflow is so negative that storage cannot give it. Before, water for the least outflow was taken from nowhere if
// its penalty was above twice the cost of a deficit.
func TestNoWaterIsTakenFromNowhere(t *testing.T) {
	missing, penalties := 0, 0.0
	for n := range 12 {
		c := penalized(n, rand.New(rand.NewPCG(uint64(n), 19)))
		noise := NewNoise(c, 1, 3)
		tr := trained(t, c, Options{Iterations: 6, Passes: 3, Openings: 3, Seed: 1, Solver: lp.Embedded})
		p, err := newPlanner(c, noise, tr.Policy.Pool, func() lp.Solver { return lp.New() })
		if err != nil {
			t.Fatal(err)
		}
		for path := range 20 {
			before := c.initialState()
			_, err := p.forward(t.Context(), func(s int) []float64 { return noise.Inflow(s, noise.path(path, s)) }, func(s *stage) {
				parts := s.costs()
				sum := 0.0
				for _, x := range parts {
					sum += x
				}
				if math.Abs(sum-s.cost()) > 1e-9*math.Max(1, math.Abs(s.cost())) {
					t.Errorf("case %d, stage %d: the parts of the cost add up to %v, the cost is %v", n, s.t+1, sum, s.cost())
				}
				penalties += parts.Penalties()
				path := make([]float64, pathWidth(c))
				s.record(c, path)
				blocksMakeStage(t, c, stageOf(c, path, s.t))
				for r, col := range s.shortInflow {
					got, most := s.value(col), math.Max(0, -before[r]/s.fill-s.inflow[r])
					if got > most+1e-6 {
						t.Errorf("case %d, stage %d, reservoir %d: %v of water is missing, and at most %v can be", n, s.t+1, r, got, most)
					}
					if got > 1e-6 {
						missing++
					}
				}
				copy(before, s.end(c))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if missing == 0 || penalties == 0 {
		t.Errorf("water was missing %d times, and penalties are %v: the cases are too tame", missing, penalties)
	}
}

// blocksMakeStage checks that the means of a stage are those of its load blocks, and that load is met in each of them.
func blocksMakeStage(t *testing.T, c *Case, st *StageResult) {
	t.Helper()
	if len(st.Blocks) != len(c.Blocks) || len(c.Blocks) == 0 {
		t.Fatalf("%d blocks, want %d and at least one", len(st.Blocks), len(c.Blocks))
	}
	mean := func(figure func(b *BlockResult) float64) (sum float64) {
		for k := range st.Blocks {
			sum += c.Blocks[k].Share * figure(&st.Blocks[k])
		}
		return sum
	}
	for b := range c.Buses {
		if got := mean(func(k *BlockResult) float64 { return k.MarginalCost[b] }); math.Abs(got-st.MarginalCost[b]) > 1e-6 {
			t.Errorf("bus %d: the marginal cost is %v, that of the blocks %v", b, st.MarginalCost[b], got)
		}
		for k, block := range st.Blocks {
			met := block.Deficit[b]
			for i, g := range c.Thermals {
				if g.Bus == b {
					met += block.ThermalPlant[i]
				}
			}
			for i, r := range c.Reservoirs {
				if r.Bus == b {
					met += block.Generation[i]
				}
			}
			for i, l := range c.Lines {
				if l.To == b {
					met += block.Flow[i]
				}
				if l.From == b {
					met -= block.Flow[i]
				}
			}
			if math.Abs(met-block.Load[b]) > 1e-6 {
				t.Errorf("block %d, bus %d: %v MW serve a load of %v", k, b, met, block.Load[b])
			}
		}
	}
	for i := range c.Thermals {
		if got := mean(func(k *BlockResult) float64 { return k.ThermalPlant[i] }); math.Abs(got-st.ThermalPlant[i]) > 1e-6 {
			t.Errorf("plant %d: %v MW, of the blocks %v", i, st.ThermalPlant[i], got)
		}
	}
}
