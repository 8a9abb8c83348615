package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/generation"
)

// program is what a rank does: it joins worlds until all ranks of one use it that is no first one.
func (j *islands) program(me *islander) error {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		me.end = cancel
		var next *Comm
		var err error
		if me.world == nil {
			next, err = me.next(ctx, nil)
		} else {
			next, err = Rejoin(ctx, me.world)
		}
		cancel()
		switch {
		case me.lost || me.closing && errors.Is(err, ErrClosed):
			return nil
		case errors.Is(err, ErrCanceled):
			continue
		case err != nil:
			return err
		}
		g, other := next.base().Backend().(*end).group, (*group)(nil)
		j.change(func() {
			other, j.used[next.Generation()] = j.used[next.Generation()], g
			me.world, g.uses[next.Rank()] = next, true
		})
		switch {
		case other != nil && other != g:
			return fmt.Errorf("two worlds are generation %d", next.Generation())
		case me.closing:
			return next.Close()
		}
		finished := false
		_ = j.await(context.Background(), me, func() (bool, error) {
			broken := slices.Contains(g.closed, true) || g.breaks() != nil
			g.finished = g.finished || !broken && !slices.Contains(g.uses, false)
			finished = g.finished
			return finished || broken, nil
		})
		if finished && next.Generation() > 0 || me.lost || me.closing {
			return nil
		}
	}
}

// start starts the program of a rank.
func (j *islands) start(me *islander) {
	go func() {
		err := j.program(me)
		j.change(func() { me.over, me.err = true, err })
	}()
}

// events returns what can happen to ranks.
func (j *islands) events(ranks int) (all []event) {
	for number := range ranks {
		on := func(name string, f func(me *islander)) {
			all = append(all, event{fmt.Sprint("rank ", number, " ", name), func() {
				if number < len(j.ranks) {
					f(j.ranks[number])
				}
			}})
		}
		on("dies", j.dies)
		on("is out of time", func(me *islander) { me.end() })
		on("fails", func(me *islander) { me.fails = true })
		on("closes", func(me *islander) {
			if me.world != nil {
				me.closing = true
				go me.world.Close()
			}
		})
	}
	return all
}

func (j *islands) dies(me *islander) {
	j.change(func() { me.lost = true })
	me.end()
	j.died(me)
}

// over reports whether the programs of all ranks are over.
func (j *islands) over() bool {
	return !slices.ContainsFunc(j.ranks, func(r *islander) bool { return !r.over })
}

// finish reports what is wrong, and ends the programs.
func (j *islands) finish(t *testing.T, err error) {
	if err == nil {
		err = j.check()
	}
	if err != nil {
		t.Errorf("%v\n%s", err, strings.Join(j.trace, "\n"))
	}
	for _, me := range j.ranks {
		if j.dies(me); me.world != nil {
			_ = me.world.Close()
		}
	}
}

// check checks what the ranks have left when their programs are over.
func (j *islands) check() error {
	for _, g := range j.used {
		for rank, r := range g.members {
			if !g.uses[rank] && !r.lost && !r.closing {
				return fmt.Errorf("rank %d does not use a world that others use", r.number)
			}
		}
	}
	for _, e := range j.ends {
		if r := e.me(); !e.closed[e.rank] && !r.lost && r.world.base().Backend() != backend.Comm(e) {
			return fmt.Errorf("rank %d has left an end of a communicator of %d ranks open", r.number, len(e.members))
		}
	}
	for _, r := range j.ranks {
		if r.err != nil {
			return fmt.Errorf("rank %d: %w", r.number, r.err)
		}
	}
	return nil
}

// The survivors of a world join the next one while ranks die, run out of time, cannot open a world, or close theirs. All ranks
// end in a world that all its ranks use, each of the others has an error, and nothing is left open.
func TestSurvivorsRejoinInEveryOrder(t *testing.T) {
	bounds := []orders{{events: 1}, {events: 2, only: "dies"}, {deviations: 1, events: 1}, {events: 2}}
	explore(t, bounds, func(t *testing.T, o *orders) {
		j := newIslands(o)
		for range 3 {
			j.rank(new(survivors))
		}
		first := j.group(j.ranks)
		for i, me := range j.ranks {
			me.world = me.enter(first.end(i), me.first)
			j.start(me)
		}
		j.finish(t, j.run(j.events(3), j.over))
	})
}

// launches is a job with a launcher. Messages to it and from it take their time.
type launches struct {
	*islands
	ctx      context.Context
	deciding sync.Mutex // guards the machine
	machine  *generation.Machine
	clients  []*generation.Client      // by process
	down     []chan generation.Message // to it
	wrong    string
}

// decide has the machine handle an event, when it is the turn of a process.
func (l *launches) decide(me *islander, what string, f func()) {
	if l.turn(l.ctx, me, what) == nil {
		l.deciding.Lock()
		defer l.deciding.Unlock()
		f()
	}
}

// The methods of generation.Host are called with the mutex held.

func (l *launches) Start(id, _ int) {
	up, down := make(chan generation.Request, 100), make(chan generation.Message, 100)
	var me *islander
	client := generation.NewClient(func(r generation.Request) error {
		if !me.lost {
			up <- r
		}
		return nil
	})
	l.change(func() { me = l.rank(&launcher{client}) })
	l.clients, l.down = append(l.clients, client), append(l.down, down)
	go func() {
		for {
			select {
			case r := <-up:
				l.decide(me, "tells", func() { l.machine.Handle(id, r) })
			case <-l.ctx.Done():
				return
			}
		}
	}()
	go func() {
		for {
			select {
			case m := <-down:
				if l.turn(l.ctx, me, "hears") == nil {
					client.Got(m)
				}
			case <-l.ctx.Done():
				return
			}
		}
	}()
	go func() { // its end
		_ = l.await(l.ctx, me, func() (bool, error) { return me.over, nil })
		if me.lost || me.closing {
			l.decide(me, "is reported", func() { l.machine.Ended(id, !me.lost, false) })
		}
	}()
	l.islands.start(me)
}

func (l *launches) Tell(id int, m generation.Message) { l.down[id] <- m }
func (l *launches) Fail(text string)                  { l.wrong = text }

func (l *launches) Kill(id int) {
	if !l.ranks[id].lost {
		l.wrong = fmt.Sprintf("rank %d is killed, and lives", id)
	}
}

// The ranks of a job join its next world while ranks die, are out of time, cannot open a world, or close theirs. Others are
// started in place of those that have died. All ranks end in a world that all its ranks use, unless one has finished, and nothing
// is left open.
func TestReplacementsRejoinInEveryOrder(t *testing.T) {
	bounds := []orders{{deviations: 1, events: 1}, {events: 2, only: "dies"}, {events: 2}}
	explore(t, bounds, func(t *testing.T, o *orders) {
		const ranks = 2
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		l := &launches{islands: newIslands(o), ctx: ctx}
		l.machine = generation.New(generation.Config{Now: time.Now, Job: "j", Size: ranks, Min: 1, Max: ranks, Restarts: 2, Host: l})
		l.died = func(me *islander) { l.clients[me.number].Got(generation.Message{Out: "it is dead"}) } // as if its socket were closed
		l.quiet = func() {
			l.deciding.Lock()
			defer l.deciding.Unlock()
			l.machine.Tick()
		}
		for id := range ranks {
			l.Start(id, id)
		}
		err := l.run(nil, func() bool { return l.used[0] != nil && l.used[0].finished })
		if err == nil {
			err = l.run(l.events(ranks+1), l.over)
		}
		if err == nil && l.wrong != "" {
			err = errors.New(l.wrong)
		}
		finished := slices.ContainsFunc(l.ranks, func(r *islander) bool { return r.closing })
		for _, r := range l.ranks {
			if finished && errors.Is(r.err, ErrPeerLost) {
				r.err = nil // there is no other world
			}
		}
		l.finish(t, err)
	})
}
