package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/must"
)

func TestWrongColorLeavesCommunicatorUsable(t *testing.T) {
	ranks(t, 3, func(w *Comm) error {
		_, err := w.Split(-1, 0)
		must.OK(errors.Join(wantErr("color -1", err, ErrRank), isOp(err, "split")))
		return w.Barrier() // the communicator is still usable
	})
}

// Many goroutines of each rank create communicators at once, each from its own parent. No message
// may reach another communicator.
func TestConcurrentDupsAreSeparate(t *testing.T) {
	const lanes, rounds = 6, 5
	ranks(t, 3, func(w *Comm) error {
		parents := make([]*Comm, lanes)
		for i := range parents {
			var err error
			if parents[i], err = w.Dup(); err != nil {
				return err
			}
		}
		errs := make([]error, lanes)
		var wg sync.WaitGroup
		for lane := range lanes {
			wg.Go(func() {
				for round := range rounds {
					var d *Comm
					var err error
					if lane%2 == 0 {
						d, err = parents[lane].Dup()
					} else {
						d, err = parents[lane].CreateGroup(parents[lane].Group(), lane)
					}
					if err != nil {
						errs[lane] = err
						return
					}
					for i := range 10 {
						got := make([]int, 1)
						next, prev := (w.Rank()+1)%3, (w.Rank()+2)%3
						if _, err := Sendrecv(d, []int{lane*1000 + round*100 + i}, next, 0, got, prev, AnyTag); err != nil || got[0] != lane*1000+round*100+i {
							errs[lane] = fmt.Errorf("lane %d, round %d, message %d: got %d: %w", lane, round, i, got[0], err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

// The group of a communicator's communicator gives another one. A rank that is not in a group cannot make its communicator.
func TestCreateGroupOfGroup(t *testing.T) {
	ranks(t, 4, func(w *Comm) error {
		g := must.Get(w.Group().Incl(3, 1))
		if w.Rank()%2 == 0 {
			return wantErr("a rank that is not in the group", second(w.CreateGroup(g, 0)), ErrRank)
		}
		c := must.Get(w.CreateGroup(g, 0))
		back := must.Get(g.Incl(1, 0))
		d, err := c.CreateGroup(back, 5)
		if err == nil && (d.Size() != 2 || d.Rank() != w.Rank()/2 || c.Rank() != 1-w.Rank()/2 || d.Name() != c.Name()+".group1") {
			err = fmt.Errorf("rank %d of %s is %d of %s", c.Rank(), c.Name(), d.Rank(), d.Name())
		}
		return err
	})
}

func TestCreateGroupReportsErrors(t *testing.T) {
	ranks(t, 3, func(w *Comm) error {
		_, err := w.CreateGroup(w.Group(), -2)
		must.OK(wantErr("tag", err, ErrTag))
		_, err = w.CreateGroup(nil, 0)
		must.OK(wantErr("no group", err, ErrRank))
		one := must.Get(w.Split(w.Rank(), 0))
		_, err = one.CreateGroup(w.Group(), 0)
		must.OK(wantErr("members that are not in the communicator", err, ErrRank))
		// Different groups of the same members.
		g := w.Group()
		if w.Rank() == 2 {
			if g, err = g.Incl(0, 2, 1); err != nil {
				return err
			}
		}
		_, err = w.CreateGroup(g, 0)
		must.OK(errors.Join(wantErr("other groups", err, ErrMismatch), isOp(err, "creategroup")))
		// A member does not call it.
		if w.Rank() == 2 {
			return w.Barrier()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err = w.WithContext(ctx).CreateGroup(w.Group(), 1)
		must.OK(wantErr("a member that does not come", err, ErrTimeout))
		return w.Barrier() // the communicator is still usable
	})
}

// Ranks make communicators of one group after another with one tag, all in the same order. A rank's claim for a later group
// may arrive while the other rank still waits in an earlier one.
func TestCreateGroupOneAfterAnotherWithOneTag(t *testing.T) {
	groups := [][]int{{0, 1}, {1, 2}, {2, 3}, {0, 1, 2, 3}, {1, 2, 3}, {3, 1}, {2, 1, 3}, {0, 3}}
	ranks(t, 4, func(w *Comm) error {
		for range 20 {
			for _, g := range groups {
				if slices.Contains(g, w.Rank()) {
					c := must.Get(w.CreateGroup(must.Get(w.Group().Incl(g...)), 0))
					if !slices.Equal(c.Group().world, g) {
						return fmt.Errorf("made a communicator of %v, want %v", c.Group().world, g)
					}
					must.OK(c.Close())
				}
			}
		}
		return nil
	})
}

// A rank's CreateGroup runs out of time, and the rank then makes other communicators. When the members call it again, the
// communicator has an id that the rank has not used.
func TestCreateGroupAgainAfterTimeout(t *testing.T) {
	ranks(t, 3, func(w *Comm) error {
		pair := func(a, b, tag int) func(*Comm) (*Comm, error) {
			return func(c *Comm) (*Comm, error) {
				g, err := c.Group().Incl(a, b)
				if err != nil || g.Rank() == Undefined {
					return nil, err
				}
				return c.CreateGroup(g, tag)
			}
		}
		first, second := pair(0, 1, 5), pair(1, 2, 9)
		if w.Rank() == 1 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			if _, err := first(w.WithContext(ctx)); !errors.Is(err, ErrTimeout) {
				return wantErr("rank 0 does not come", err, ErrTimeout)
			}
		}
		for range 3 {
			must.Get(second(w))
		}
		must.OK(w.Barrier())
		a := must.Get(first(w))
		b, err := second(w)
		if err != nil {
			return err
		}
		if w.Rank() == 0 { // a message on a does not arrive on b
			err = Send(a, []int{100}, 1, 0)
		}
		must.OK(errors.Join(err, w.Barrier()))
		got := []int{200}
		switch w.Rank() {
		case 1:
			_, err = Recv(b, got, AnySource, 0)
		case 2:
			err = Send(b, got, 0, 0)
		}
		if err == nil && got[0] != 200 {
			err = fmt.Errorf("received %d, want 200", got[0])
		}
		return err
	})
}

// A communicator made from a handle with a context outlives the one that it was made from.
func TestDerivedCommunicatorKeepsContextAfterClose(t *testing.T) {
	world, stop := context.WithCancel(context.Background())
	defer stop()
	err := Run(world, 2, func(w *Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		d, err := w.Dup()
		if err != nil {
			return err
		}
		e, err := d.WithContext(ctx).Dup()
		if err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
		q, err := Irecv(e, make([]int, 1), w.Rank(), 0)
		if err != nil {
			return err
		}
		if _, done, err := q.Test(); done || err != nil {
			return fmt.Errorf("after the other was closed: %v, %v", done, err)
		}
		cancel()
		_, err = q.Wait()
		return wantErr("wait", err, ErrCanceled)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGroupSetOperations(t *testing.T) {
	ranks(t, 6, func(w *Comm) error {
		all := w.Group()
		eq := func(what string, g *Group, want ...int) {
			if !slices.Equal(g.world, want) || g.Size() != len(want) {
				t.Errorf("%s: got %v, want %v", what, g.world, want)
			}
			at := slices.Index(want, w.Rank())
			if at < 0 {
				at = Undefined
			}
			if g.Rank() != at {
				t.Errorf("%s: rank %d has number %d, want %d", what, w.Rank(), g.Rank(), at)
			}
		}
		a, b := must.Get(all.Incl(5, 1, 3)), must.Get(all.Incl(3, 2, 5))
		eq("all", all, 0, 1, 2, 3, 4, 5)
		eq("incl", a, 5, 1, 3)
		eq("incl of incl", must.Get(a.Incl(2, 0)), 3, 5)
		eq("incl of nothing", must.Get(all.Incl()))
		eq("excl", must.Get(all.Excl(0, 4)), 1, 2, 3, 5)
		eq("excl of incl", must.Get(a.Excl(0)), 1, 3)
		eq("union", a.Union(b), 5, 1, 3, 2)
		eq("union with a nil group", (*Group)(nil).Union(a).Union(b), 5, 1, 3, 2)
		eq("union with the group of a nil communicator", (*Comm)(nil).Group().Union(a), 5, 1, 3)
		eq("intersection", a.Intersection(b), 5, 3)
		eq("difference", a.Difference(b), 1)
		got, err := a.TranslateRanks([]int{0, 1, 2, ProcNull}, b)
		if err != nil || !slices.Equal(got, []int{2, Undefined, 0, ProcNull}) {
			t.Errorf("translated: %v, %v", got, err)
		}
		if a.Equal(b) || !a.Equal(must.Get(all.Incl(5, 1, 3))) || !a.Similar(must.Get(all.Incl(1, 3, 5))) || a.Similar(b) || a.Equal(must.Get(all.Incl(1, 3, 5))) {
			t.Error("groups compare wrongly")
		}
		for what, f := range map[string]func() error{
			"out of range": func() error { return second(all.Incl(6)) },
			"negative":     func() error { return second(all.Excl(-1)) },
			"twice":        func() error { return second(all.Incl(1, 2, 1)) },
			"translate":    func() error { return second(a.TranslateRanks([]int{3}, b)) },
		} {
			if err := f(); !errors.Is(err, ErrRank) {
				t.Errorf("%s: %v", what, err)
			}
		}
		half := must.Get(w.Split(w.Rank()%2, 0))
		want := []int{w.Rank() % 2, w.Rank()%2 + 2, w.Rank()%2 + 4}
		eq("of a part", half.Group(), want...)
		return nil
	})
}
