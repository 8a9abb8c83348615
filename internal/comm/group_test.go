package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// Some members do not call CreateGroup with the group of the others, whose errors name the missing rank. Afterwards all
// call it with one group. A rank's time ends when that of the lower ranks has ended, and that of rank 0 when the claims for
// it have arrived.
func TestCreateGroupNamesMissingRanks(t *testing.T) {
	all := []int{0, 1, 2}
	for _, c := range []missingRanks{
		{"a member", [3][]int{all, all, nil}, [3]string{"not heard from rank 2", "rank 0 has not heard from rank 2"}},
		{"the first of the group", [3][]int{{2, 1, 0}, {2, 1, 0}, nil}, [3]string{"not heard from rank 2", "rank 0 has not heard from rank 2"}},
		{"two members", [3][]int{{2, 1, 0}, nil, nil}, [3]string{"not heard from ranks 1, 2"}},
		{"the lowest rank", [3][]int{nil, all, all}, [3]string{1: "rank 0 has not answered", 2: "rank 0 has not answered"}},
		{"another lowest rank", [3][]int{all, {1, 2}, all}, [3]string{"not heard from rank 1", "not heard from rank 2", "rank 0 has not heard from rank 1"}},
		{"the lowest rank leaves one out", [3][]int{{0, 1}, {0, 1}, all}, [3]string{2: "rank 0 has not answered"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ended [3]chan struct{}
			for r := range ended {
				ended[r] = make(chan struct{})
			}
			ranks(t, 3, func(w *Comm) error {
				me := w.Rank()
				err := c.call(w, ended[:me])
				close(ended[me])
				must.OK(err)
				for r := range ended {
					<-ended[r]
				}
				_, err = w.CreateGroup(all, 1, nil)
				return err
			})
		})
	}
}

type missingRanks struct {
	name   string
	groups [3][]int  // by rank; nil: the rank does not call it
	want   [3]string // by rank, in its error; empty: it gets none
}

// call is a rank's call. lower are closed when those of the lower ranks have ended.
func (c *missingRanks) call(w *Comm, lower []chan struct{}) error {
	me := w.Rank()
	if c.groups[me] == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sentinel := backend.ErrCanceled
	switch {
	case me == 0:
		for r := 1; r < w.Size(); r++ {
			if slices.Contains(c.groups[r], 0) {
				_, _ = must.Get2(w.core.bc.Probe(nil, r, backend.GroupTag(1), true))
			}
		}
		if c.want[0] != "" {
			ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			sentinel = backend.ErrTimeout
		}
	case c.want[me] != "":
		go func() {
			for _, ended := range lower {
				<-ended
			}
			cancel()
		}()
	}
	_, err := w.WithContext(ctx).CreateGroup(c.groups[me], 1, nil)
	if want := c.want[me]; want != "" && (!errors.Is(err, sentinel) || !strings.Contains(err.Error(), want+"; all members")) {
		return fmt.Errorf("rank %d: %v, want %v with %q", me, err, sentinel, want)
	} else if want == "" {
		return err
	}
	return nil
}
