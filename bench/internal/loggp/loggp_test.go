package loggp

import (
	"math"
	"math/bits"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// predict builds all ranks, or a block of them if that is enough.
func predict(t *testing.T, m *Machine, algorithm string, call *backend.Call, n int, whole bool) float64 {
	t.Helper()
	build := func(rank int) (*coll.Schedule, error) {
		return coll.BuildAs(algorithm, call, rank, n, m.Nodes(n))
	}
	var p *Program
	var err error
	if whole {
		p, err = every(n, m.Ranks, math.MaxInt, build)
	} else {
		p, err = NewProgram(n, m.Ranks, math.MaxInt, build)
	}
	if err != nil {
		t.Fatal(err)
	}
	if whole != (len(p.ranks) == n) {
		return math.NaN()
	}
	seconds, err := p.Time(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

// TestTimesMatchTheFormulas compares simulated times with formulas for algorithms whose ranks all do the same
// at the same time.
func TestTimesMatchTheFormulas(t *testing.T) {
	m := Cluster(1)
	for _, n := range []int{2, 4, 8, 32, 256} {
		log := float64(bits.Len(uint(n - 1)))
		const bytes = 1 << 20
		step := m.Round + m.Across.Message(0)
		part := float64(bytes - bytes/n)
		for _, c := range []struct {
			coll      backend.Coll
			algorithm string
			want      float64
		}{
			{backend.Barrier, "barrier/dissemination", log * step},
			{backend.Allreduce, "allreduce/recursive-doubling", log * (step + bytes*(m.Across.PerGap+m.Reduce))},
			{backend.Allreduce, "allreduce/rabenseifner", 2*log*step + part*(2*m.Across.PerGap+m.Reduce)},
			{backend.Allgather, "allgather/ring", float64(n-1)*step + part*m.Across.PerGap + bytes/float64(n)*m.Copy},
			{backend.Allgather, "allgather/recursive-doubling", log*step + part*m.Across.PerGap + bytes/float64(n)*m.Copy},
		} {
			got := predict(t, m, c.algorithm, Call(c.coll, n, bytes), n, true)
			if math.Abs(got/c.want-1) > 0.01 {
				t.Errorf("%s of %d ranks: %.4g µs, the formula gives %.4g µs", c.algorithm, n, got*1e6, c.want*1e6)
			}
		}
	}
}

// TestOneBlockStandsForAll: where one rank or node stands for all, the time is that of all ranks.
func TestOneBlockStandsForAll(t *testing.T) {
	reduced := 0
	for _, c := range Colls {
		for _, perNode := range []int{1, 4} {
			m := Cluster(perNode)
			for _, n := range []int{8, 12, 32, 36} {
				for _, bytes := range []int{8 * n, 1 << 20} {
					call := Call(c, n, bytes)
					names, err := coll.Algorithms(call, 0, n, m.Nodes(n))
					if err != nil {
						t.Fatal(err)
					}
					for _, name := range names {
						part := predict(t, m, name, call, n, false)
						if math.IsNaN(part) {
							continue
						}
						reduced++
						if all := predict(t, m, name, call, n, true); math.Abs(part/all-1) > 0.02 {
							t.Errorf("%s of %d bytes on %d ranks, %d on a node: one stands for all with %.4g µs, all take %.4g µs",
								name, bytes, n, perNode, part*1e6, all*1e6)
						}
					}
				}
			}
		}
	}
	if reduced < 100 {
		t.Errorf("one rank or node stood for all only %d times", reduced)
	}
}

// TestCoresAreShared: two ranks that only compute take twice as long on one core.
func TestCoresAreShared(t *testing.T) {
	p := &Program{n: 2, ranks: make([]track, 2)}
	for r := range p.ranks {
		p.ranks[r].rounds = []round{{reduces: 1000}}
	}
	for cores, want := range map[int]float64{0: 3e-6, 1: 6e-6, 2: 3e-6} {
		m := &Machine{Ranks: 2, Cores: cores, Reduce: 1e-9}
		if got, err := p.Time(m, 3); err != nil || math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%d cores: %g s, %v, want %g s", cores, got, err, want)
		}
	}
}

// TestUnmatchedReceiveIsAnError: a program whose ranks wait for each other for ever has no time.
func TestUnmatchedReceiveIsAnError(t *testing.T) {
	p := &Program{n: 1, ranks: []track{{ops: []op{{on: 1}}, rounds: []round{{recvs: 1}}}}}
	if s, err := p.Time(Cluster(1), 1); err == nil {
		t.Errorf("%g s, want an error", s)
	}
}
