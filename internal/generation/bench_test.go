package generation

import (
	"fmt"
	"time"
)

// bench is a job of which a test makes every event, and the host of its machine. It writes down what the machine asks for.
type bench struct {
	*Machine
	now  time.Time
	log  []string
	deaf bool  // no process answers whether it lives
	owed []int // ids of those that are to answer
}

func newBench(c Config) *bench {
	b := &bench{now: time.Unix(1000, 0)}
	c.Now, c.Host, c.Job = func() time.Time { return b.now }, b, "j"
	if c.Max == 0 {
		c.Min, c.Max = c.Size, c.Size
	}
	b.Machine = New(c)
	return b
}

func (b *bench) note(format string, args ...any) { b.log = append(b.log, fmt.Sprintf(format, args...)) }

func (b *bench) Start(id, rank int) { b.note("start %d as %d", id, rank) }
func (b *bench) Kill(id int)        { b.note("kill %d", id) }
func (b *bench) Fail(string)        { b.note("fail") }

func (b *bench) Tell(id int, m Message) {
	switch {
	case m.Place != nil:
		b.note("%d: %s %d/%d", id, m.Place.Job, m.Place.Rank, m.Place.Size)
	case m.Out != "" && m.Left:
		b.note("%d: leaves", id)
	case m.Out != "":
		b.note("%d: out", id)
	case m.Missing != nil:
		b.note("%d: missing %v", id, m.Missing[1:])
	case m.Shared != nil:
		b.note("%d: shared %s", id, *m.Shared)
	case m.Go:
		b.note("%d: go", id)
	case m.Broken != "":
		b.note("%d: broken", id)
	case m.Resize:
		b.note("%d: resize", id)
	case m.Alive && !b.deaf:
		b.owed = append(b.owed, id)
	}
}

// newPair returns a job of two ranks in their first world, which may have 1 to 4.
func newPair() *bench {
	b := newBench(Config{Size: 2, Min: 1, Max: 4})
	b.asks(0)
	b.asks(1)
	b.join(0, 1)
	return b
}

func (b *bench) asks(id int, lost ...int) { b.Handle(id, Request{Ask: &Ask{Lost: lost}}) }

func (b *bench) join(ids ...int) {
	for _, id := range ids {
		b.Handle(id, Request{Joined: true})
	}
}

// after lets time pass, in which the owner of the machine runs.
func (b *bench) after(d time.Duration) {
	for ; d > watchEvery; d -= watchEvery {
		b.now = b.now.Add(watchEvery)
		b.Tick()
		for _, id := range b.owed {
			b.Handle(id, Request{Alive: true})
		}
		b.owed = nil
	}
	b.now = b.now.Add(d)
	b.Tick()
}
