package sddp

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Multi-cut reaches the bound of single cuts, and in fewer iterations: its cuts are at least as tight (Birge and
// Louveaux, 1988).
func TestMultiCutReachesBoundOfSingleCutSooner(t *testing.T) {
	c := rotated(t, 3)
	opt := Options{Iterations: 40, Passes: 2, Openings: 4, Seed: 3}
	single := trained(t, c, opt).Iterations
	opt.Iterations, opt.MultiCut = 24, true
	bound, multi := single[39].LowerBound, trained(t, c, opt).Policy.LowerBound
	if !within(multi, bound) || within(single[23].LowerBound, bound) {
		t.Errorf("after 24 iterations the bound is %.10g with multi-cut and %.10g without; want the first equal to %.10g, after 40 without", multi, single[23].LowerBound, bound)
	}
}

// A policy with multi-cut reads back, costs what the trained one costs, and is no policy without its lists.
func TestMultiCutPolicyReadsBack(t *testing.T) {
	c := readShipped(t, "toy")
	c.Reservoirs[0].InflowStd = []float64{10, 20, 30}
	p := trained(t, c, Options{Iterations: 4, Passes: 2, Openings: 3, MultiCut: true}).Policy
	if first, end := p.Pool.Lists(1); first != 3 || end != 6 {
		t.Errorf("the lists of stage 2 are %d to %d, want 3 to 6", first, end)
	}
	text := p.Encode()
	got, err := ParsePolicy("file", text, c)
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Fatalf("got %+v, %v, want %+v", got, err, p)
	}
	single := strings.Replace(string(text), `"multi_cut": 1`, `"multi_cut": 0`, 1)
	if _, err := ParsePolicy("file", []byte(single), c); err == nil || !strings.Contains(err.Error(), "cuts: got 6, want 2 stages") {
		t.Errorf("without multi-cut: got %v", err)
	}
}

func TestMultiCutNamesWhatItExcludes(t *testing.T) {
	c := rotated(t, 3)
	base := Options{Iterations: 2, Passes: 2, Openings: 3}
	single := trained(t, c, base).Policy
	base.MultiCut = true
	multi := trained(t, c, base).Policy
	for _, k := range []struct {
		set  func(o *Options)
		want string
	}{
		{func(o *Options) { o.Risk = Risk{0.5, 0.1} }, "multi-cut and CVaR"},
		{func(o *Options) { o.CutSelection = true }, "multi-cut and cut selection"},
		{func(o *Options) { o.Warm = single }, "trained with multi-cut false, and this training has multi-cut true"},
		{func(o *Options) { o.MultiCut, o.Warm = false, multi }, "trained with multi-cut true, and this training has multi-cut false"},
		{func(o *Options) { o.Openings, o.Warm = 4, multi }, "the same number of openings"},
		{func(o *Options) { o.Warm = multi }, ""},
	} {
		opt := base
		k.set(&opt)
		err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
			_, err := Train(context.Background(), world, c, opt)
			return err
		})
		if k.want == "" && err != nil || k.want != "" && (err == nil || !strings.Contains(err.Error(), k.want)) {
			t.Errorf("got %v, want %q", err, k.want)
		}
	}
}
