package sddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The inflows in shared memory equal those of NewNoise on every rank, however the work is divided.
func TestSharedInflowsEqualLocalOnes(t *testing.T) {
	c := readShipped(t, "brazil4")
	want := NewNoise(c, 3, 7)
	for _, ranks := range []int{1, 3, 14} { // more than stages, too
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			w, err := newCrew(world, 1+world.Rank()%2, "none", nil)
			if err != nil {
				return err
			}
			defer w.close()
			n, r, err := shareNoise(world, w, c, 3, 7)
			if err != nil {
				return err
			}
			for s := range c.Stages {
				for k := range 7 {
					if !sameBits(n.Inflow(s, k), want.Inflow(s, k)) {
						return fmt.Errorf("rank %d, stage %d, opening %d: %v, want %v", world.Rank(), s, k, n.Inflow(s, k), want.Inflow(s, k))
					}
				}
			}
			if err := world.Barrier(); err != nil { // all have read
				return err
			}
			return r.Close()
		})
		if err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}

// A difference in one bit of the last inflow is reported on all ranks.
func TestDifferentInflowsAreReported(t *testing.T) {
	c := readShipped(t, "brazil4")
	for _, differs := range []bool{false, true} {
		err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
			n := NewNoise(c, 3, 100) // more than are hashed at a time
			if last := &n.inflow[len(n.inflow)-1]; differs && world.Rank() == 1 {
				*last = math.Nextafter(*last, 0)
			}
			if err := n.compare(world); (err != nil) != differs || differs && !strings.Contains(err.Error(), "do not have the same inflows") {
				return fmt.Errorf("rank %d, differs %v: got %w", world.Rank(), differs, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// cutOf returns a number of a cut that identifies its place.
func cutOf(iteration, stage, pass, i int) float64 {
	return float64(1000*iteration+100*stage+10*pass+i) / 7
}

// Cuts in shared memory equal cuts on the heap on every rank, across the boundaries of regions. Each region
// is as large as all before it, and none is larger than the training can use.
func TestSharedCutsEqualLocalOnes(t *testing.T) {
	c := readShipped(t, "brazil4")
	const passes, iterations = 3, 45
	width := 1 + len(c.Reservoirs)
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		m := newCutMemory(world, newPool(c.Stages, c.states()), passes, iterations, 0)
		m.first = 4 * (c.Stages - 1) * passes * width // four iterations
		want := newPool(c.Stages, len(c.Reservoirs))
		var room []int
		for it := range iterations {
			if err := m.reserve(it); err != nil {
				return err
			}
			if len(room) == 0 || room[len(room)-1] != m.room {
				room = append(room, m.room)
			}
			for s := c.Stages - 2; s >= 0; s-- {
				cuts := make([]float64, passes*width)
				for k := range cuts {
					cuts[k] = cutOf(it, s, k/width, k%width)
				}
				if err := m.add(s, cuts); err != nil {
					return err
				}
				want.add(s, cuts)
				if m.pool.Len(s) != (it+1)*passes {
					return fmt.Errorf("iteration %d: stage %d has %d cuts", it, s, m.pool.Len(s))
				}
			}
			if m.pool.SHA256() != want.SHA256() {
				return fmt.Errorf("after iteration %d the cuts differ", it)
			}
		}
		if got := fmt.Sprint(room); got != "[4 8 16 32 45]" {
			return fmt.Errorf("room for %s iterations, want it doubled up to %d", got, iterations)
		}
		for s := range c.Stages - 1 {
			for i := range m.pool.Len(s) {
				a, b := m.pool.Cut(s, i)
				if wa, wb := cutOf(i/passes, s, i%passes, 0), cutOf(i/passes, s, i%passes, width-1); a != wa || b[width-2] != wb {
					return fmt.Errorf("stage %d, cut %d: %v %v", s, i, a, b)
				}
			}
		}
		kept := m.pool.clone()
		if err := world.Barrier(); err != nil {
			return err
		}
		if err := m.close(); err != nil {
			return err
		}
		if kept.SHA256() != want.SHA256() || kept.Total() != want.Total() {
			return errors.New("the copy is not the same")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMostViolatedCutIsFirstOfEquals(t *testing.T) {
	heap, parts := newPool(3, 1), newPool(3, 1)
	cuts := []float64{5, 1, 7, 0, 1, 3, 6, 0.5, 7, 0} // at 2: 7, 7, 7, 7, 7
	heap.add(0, cuts)
	parts.extend(0, make([]float64, 0, 2))
	copy(parts.grow(0, 2), cuts)
	parts.extend(0, make([]float64, 0, 8))
	copy(parts.grow(0, 8), cuts[2:])
	none := func() []bool { return make([]bool, 5) }
	first := none()
	first[0] = true
	for _, k := range []struct {
		v, theta, least float64
		held            []bool
		want            int
	}{
		{2, 6, 0.5, none(), 0},
		{2, 6, 0.5, first, 1},
		{2, 6, 1, none(), -1}, // not above least
		{3, 6, 0.5, none(), 2},
		{0, 6, 0.5, none(), 1},
		{0, 6, 0.5, []bool{false, true, false, false, false}, 4},
		{0, 8, 0.5, none(), -1},
	} {
		for name, p := range map[string]*Pool{"heap": heap, "parts": parts} {
			if got := p.mostViolated(0, []float64{k.v}, k.theta, k.least, k.held); got != k.want {
				t.Errorf("%s: at %v with theta %v above %v: cut %d, want %d", name, k.v, k.theta, k.least, got, k.want)
			}
		}
	}
	if heap.SHA256() != parts.SHA256() || parts.clone().SHA256() != heap.SHA256() {
		t.Error("the same cuts in parts have another hash")
	}
	for _, stage := range []int{1, 2} {
		if got := parts.mostViolated(stage, []float64{1}, 0, 0, nil); got != -1 {
			t.Errorf("stage %d has no cuts, but cut %d is violated", stage, got)
		}
	}
}

func TestTogetherNamesLowestFailedRank(t *testing.T) {
	cause := errors.New("no solver")
	var mu sync.Mutex
	got := map[int]error{}
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		var failed error
		if r := world.Rank(); r == 2 || r == 3 {
			failed = cause
		}
		err := newTeam(world).together("linear programs", failed)
		mu.Lock()
		got[world.Rank()] = err
		mu.Unlock()
		return newTeam(world).together("linear programs", nil)
	})
	if err != nil {
		t.Error(err)
	}
	for r := range 4 {
		own := r >= 2
		if own && got[r] != cause || !own && (!errors.Is(got[r], ErrPeer) || !strings.Contains(got[r].Error(), "linear programs: ")) || !own && !strings.HasSuffix(got[r].Error(), "rank 2: no solver") {
			t.Errorf("rank %d got %v", r, got[r])
		}
	}
}
