//go:build interleave

package wait

import (
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// process is a process whose goroutines wait in a crew, each for a message from another process.
type process struct {
	x    *interleave.Run
	crew Crew
	bell Bell
	seen uint32
	mu   word.Mutex // the engine's
	all  []*waiter

	inside word.Bool // the leader is between Arm and Disarm
	closed word.Bool // nobody may use the links any more
}

// waiter is a goroutine of a process, and what it waits for.
type waiter struct {
	*Member
	p       *process
	message word.Bool // has been sent
	done    word.Bool // the operation is complete
	over    word.Bool // the wait is to end
	polls   bool      // as the leader, it makes progress before it sleeps
	arrives bool      // it is ready when the message is here
	sleeps  int       // as a follower
}

func newProcess(x *interleave.Run, waiters int) *process {
	p := &process{x: x}
	p.crew.Links = p
	x.Name(&p.crew.asleep, "asleep")
	x.Name(&p.bell.asleep, "announcement")
	x.Name(&p.bell.rung, "bell")
	for i := range waiters {
		w := &waiter{p: p}
		w.Member = NewMember(w)
		x.Name(&w.message, "message %d", i)
		x.Name(&w.done, "operation %d", i)
		x.Name(&w.over, "end of wait %d", i)
		p.all = append(p.all, w)
	}
	return p
}

// send is what another process does.
func (p *process) send(to int) {
	p.all[to].message.Store(true)
	p.bell.Ring()
}

// progress completes the operations whose messages are here.
func (p *process) progress() (moved bool) {
	p.mu.Lock()
	for _, w := range p.all {
		if !w.arrives && !w.done.Load() && w.message.Load() {
			w.done.Store(true)
			moved = true
		}
	}
	p.mu.Unlock()
	if moved {
		p.crew.Ask()
	}
	return moved
}

func (p *process) Arm() {
	if p.closed.Load() || p.inside.Swap(true) {
		p.x.Errorf("the links are closed, or two goroutines use them")
	}
	p.seen = p.bell.Arm()
}

func (p *process) Check() bool               { return p.progress() }
func (p *process) Sleep(limit time.Duration) { p.bell.Sleep(p.seen, limit) }

func (p *process) Disarm() {
	p.bell.Disarm()
	p.inside.Store(false)
}

func (p *process) Ring() {
	if p.closed.Load() {
		p.x.Errorf("the links are closed")
	}
	p.bell.Ring()
}

func (w *waiter) Ready() bool {
	return w.done.Load() || w.over.Load() || w.arrives && w.message.Load()
}

func (w *waiter) Look() bool {
	if w.polls {
		w.p.progress()
	}
	return w.Ready()
}

func (w *waiter) Limit() (time.Duration, bool) {
	if w.state == following {
		w.sleeps++
	}
	return 0, !w.over.Load()
}

// await is a wait that must end with the operation complete.
func (p *process) await(i int) {
	w := p.all[i]
	p.crew.Await(w.Member)
	if !w.done.Load() {
		p.x.Errorf("wait %d has ended, and the operation is not complete", i)
	}
}

// Goroutines wait for a message each, and another process sends them in one order. A goroutine that follows is woken
// once at most: because its own operation is complete, or to lead.
func TestInterleaveCrew(t *testing.T) {
	for _, c := range []struct{ waiters, preemptions int }{{1, 5}, {2, 2}, {3, 1}} {
		for _, polls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d waiters, polling %v", c.waiters, polls), func(t *testing.T) {
				interleave.Explore(t, interleave.Config{Preemptions: c.preemptions}, func(x *interleave.Run) {
					p := newProcess(x, c.waiters)
					for i, w := range p.all {
						w.polls = polls
						x.Go(fmt.Sprintf("waiter %d", i), func() { p.await(i) })
					}
					x.Go("sender", func() {
						for i := range p.all {
							p.send(i)
						}
					})
					x.Check(func() error {
						for i, w := range p.all {
							if c.waiters == 2 && w.sleeps > 1 {
								return fmt.Errorf("waiter %d has been woken %d times", i, w.sleeps)
							}
							if w.next != nil || w.prev != nil {
								return fmt.Errorf("waiter %d keeps its neighbors in memory", i)
							}
						}
						return nil
					})
				})
			})
		}
	}
}

// A goroutine waits again and again, as in a loop of messages, while another one waits for the last message.
func TestInterleaveCrewOfLoop(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		p := newProcess(x, 3)
		x.Go("loop", func() {
			p.await(0)
			p.await(1)
		})
		x.Go("waiter", func() { p.await(2) })
		x.Go("sender", func() {
			for i := range p.all {
				p.send(i)
			}
		})
	})
}

// A third goroutine makes progress, and so completes what the others wait for.
func TestInterleaveCrewBesideProgress(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		p := newProcess(x, 2)
		for i := range p.all {
			x.Go(fmt.Sprintf("waiter %d", i), func() { p.await(i) })
		}
		x.Go("other goroutine", func() {
			p.all[0].message.Store(true) // to itself: nothing rings
			p.progress()
			p.all[1].message.Store(true)
			p.progress()
		})
	})
}

// One wait is ended while messages arrive. The other one goes on, whoever led.
func TestInterleaveCrewBesideEnd(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		p := newProcess(x, 2)
		x.Go("ended", func() { p.crew.Await(p.all[0].Member) })
		x.Go("waiter", func() { p.await(1) })
		x.Go("end", func() {
			p.all[0].over.Store(true)
			p.crew.Ask()
		})
		x.Go("sender", func() { p.send(1) })
	})
}

// The time of a wait passes, and nobody wakes it but its timer, while its message arrives.
func TestInterleaveCrewBesideDeadline(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 2, Timeouts: 1}, func(x *interleave.Run) {
		p := newProcess(x, 2)
		late := &deadline{waiter: p.all[0]}
		late.Member = NewMember(late)
		x.Go("late", func() { p.crew.Await(late.Member) })
		x.Go("waiter", func() { p.await(1) })
		x.Go("sender", func() {
			p.send(0)
			p.send(1)
		})
	})
}

// deadline is a waiter whose second sleep would begin after its deadline.
type deadline struct {
	*waiter
	asked int
}

func (d *deadline) Limit() (time.Duration, bool) {
	d.asked++
	return time.Second, d.asked < 2
}

// The process ends while goroutines wait. Those whose operations are complete return, and nobody uses the links then.
func TestInterleaveCrewShut(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		p := newProcess(x, 2)
		for i := range p.all {
			x.Go(fmt.Sprintf("waiter %d", i), func() { p.await(i) })
		}
		x.Go("end", func() {
			p.all[0].done.Store(true)
			p.crew.Ask()
			p.crew.Shut()
			p.closed.Store(true)
			p.all[1].done.Store(true)
			p.crew.Ask()
			p.crew.Rouse()
		})
	})
}

// A wait in the background leads while nobody else waits, and leaves its place to others. It then waits for a timer,
// so it is explored up to there.
func TestInterleaveCrewInBackground(t *testing.T) {
	for _, polls := range []bool{false, true} {
		interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
			p := newProcess(x, 2)
			p.all[1].polls = polls
			x.Go("background", func() {
				for w := p.all[0]; !w.Ready() && p.crew.Attend(w.Member); {
				}
			})
			x.Go("waiter", func() { p.await(1) })
			x.Go("sender", func() {
				p.send(1)
				p.send(0)
			})
		})
	}
}

// Nobody else waits: the wait in the background sleeps until its message comes.
func TestInterleaveCrewInBackgroundAlone(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		p := newProcess(x, 2)
		x.Go("background", func() {
			for w := p.all[0]; !w.Ready(); {
				if !p.crew.Attend(w.Member) {
					x.Errorf("it was to leave its place, to nobody")
				}
			}
		})
		x.Go("sender", func() {
			p.send(1)
			p.send(0)
		})
	})
}

// What a follower waits for is not a message that the leader completes: another rank arrives at a slot, and rings.
func TestInterleaveCrewBesideArrival(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		p := newProcess(x, 2)
		p.all[1].arrives = true
		var ended word.Bool
		x.Go("waiter", func() { p.await(0) })
		x.Go("collective", func() {
			p.crew.Await(p.all[1].Member)
			ended.Store(true)
		})
		x.Go("other rank", func() {
			for p.send(1); !ended.Load(); {
				word.Yield()
			}
			p.send(0)
		})
	})
}

// A frame is queued while the leader is about to sleep: it wakes up to write it.
func TestInterleaveCrewRouse(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 4}, func(x *interleave.Run) {
		p := newProcess(x, 1)
		x.Go("waiter", func() { p.await(0) })
		x.Go("other goroutine", func() {
			p.mu.Lock()
			p.all[0].message.Store(true)
			p.mu.Unlock()
			p.crew.Rouse()
		})
	})
}
