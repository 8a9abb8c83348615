package sddp

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// methods are options that change the cuts, each alone. Each gets a policy of the case.
var methods = map[string]func(*Options, *Policy){
	"blocks of openings":        func(o *Options, _ *Policy) { o.OpeningBlocks = 3 },
	"more blocks than openings": func(o *Options, _ *Policy) { o.OpeningBlocks = 9 },
	"warm start with old cuts":  func(o *Options, old *Policy) { o.Warm = old },
	"warm start with old cuts as guide": func(o *Options, old *Policy) {
		o.Warm = &Policy{}
		*o.Warm = *old
		o.Warm.FutureSHA256 = "of another case"
	},
	"cut selection": func(o *Options, _ *Policy) { o.CutSelection = true },
	"cut selection after a warm start": func(o *Options, old *Policy) {
		o.CutSelection, o.Warm = true, old
	},
	"multi-cut":                         func(o *Options, _ *Policy) { o.MultiCut = true },
	"multi-cut with blocks of openings": func(o *Options, _ *Policy) { o.MultiCut, o.OpeningBlocks = true, 3 },
	"risk":                              func(o *Options, _ *Policy) { o.Risk = Risk{0.5, 0.3} },
}

// Every option that changes the cuts gives the same bits for any split of the work, and after a resume. A
// checkpoint with another value is rejected.
func TestMethodsAreSameForAnySplitAndResume(t *testing.T) {
	c := rotated(t, 5)
	splits := [][2]int{{3, 1}, {2, 3}, {5, 1}, {1, 2}}
	if testing.Short() {
		splits = splits[:2]
	}
	plainOptions := Options{Iterations: 5, Passes: 3, Openings: 4, Seed: 5}
	base := trained(t, c, plainOptions)
	for name, set := range methods {
		t.Run(name, func(t *testing.T) {
			opt := plainOptions
			set(&opt, base.Policy)
			opt.Checkpoint = t.TempDir()
			want := trained(t, c, opt)
			if want.Policy.Pool.SHA256() == base.Policy.Pool.SHA256() {
				t.Error("the same cuts as without the option")
			}
			opt.Checkpoint = ""
			for _, split := range splits {
				opt.Threads = split[1]
				trainings, _ := onRanks(t, split[0], c, opt, 2)
				for rank, got := range trainings {
					if got.Policy.Pool.SHA256() != want.Policy.Pool.SHA256() || !reflect.DeepEqual(plain(got.Iterations), plain(want.Iterations)) {
						t.Errorf("%d ranks × %d threads, rank %d: other cuts or figures", split[0], split[1], rank)
					}
				}
			}
			part := opt
			part.Iterations, part.Checkpoint = 2, t.TempDir()
			trained(t, c, part)
			opt.Resume = part.Checkpoint
			if got := trained(t, c, opt); got.Resumed != 2 || got.Policy.Pool.SHA256() != want.Policy.Pool.SHA256() {
				t.Errorf("resumed after %d iterations, other cuts than without interruption", got.Resumed)
			}
			other := plainOptions
			other.Resume = part.Checkpoint
			err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
				_, err := Train(context.Background(), world, c, other)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "method") {
				t.Errorf("resumed without the option: got %v, want an error that names the method", err)
			}
		})
	}
}
