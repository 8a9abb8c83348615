package sddp

import (
	"context"
	"errors"
	"testing"
)

// A slope that is a rounded zero is cleared and other slopes stay. Nowhere within the bounds of the
// reservoirs does the cut rise.
func TestCleanNeverRaisesCut(t *testing.T) {
	c := readShipped(t, "brazil4")
	p, err := newPlanner(c, NewNoise(c, 1, 1), newPool(c.Stages, 4), embedded)
	if err != nil {
		t.Fatal(err)
	}
	if want := 730 * 1420.34; p.dearest != want {
		t.Errorf("the dearest MW costs %v, want a deficit for 730 h, %v", p.dearest, want)
	}
	was := []float64{1e9, -1.7e-11, 1.5e-24, -4e5, 0}
	cut := append([]float64(nil), was...)
	p.clean(cut)
	if cut[1] != 0 || cut[2] != 0 || cut[3] != -4e5 || cut[4] != 0 {
		t.Errorf("slopes %v became %v", was[1:], cut[1:])
	}
	for corner := range 16 {
		v := make([]float64, 4)
		for r := range v {
			if corner>>r&1 == 1 {
				v[r] = c.Reservoirs[r].MaxStorage
			}
		}
		if now, before := height(cut[0], cut[1:], v), height(was[0], was[1:], v); now > before || before-now > 1e-4 {
			t.Errorf("at %v the cut was %v and is %v", v, before, now)
		}
	}
}

func TestPassesStopWithCauseOfContext(t *testing.T) {
	c := readShipped(t, "toy")
	p, err := newPlanner(c, NewNoise(c, 1, 1), newPool(c.Stages, 1), embedded)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := p.forward(ctx, func(t int) []float64 { return p.noise.Inflow(t, 0) }, nil); err != cause {
		t.Errorf("forward: got %v, want the cause", err)
	}
	if err := p.backward(ctx, 0, []float64{10}, make([]float64, 2)); err != cause {
		t.Errorf("backward: got %v, want the cause", err)
	}
}
