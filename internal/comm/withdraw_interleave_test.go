//go:build interleave && linux

package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/word"
)

// outbox is a backend on which a send ends when its receiver takes the message, or says that it has not matched. The receiver
// of a canceled send is asked that. Time is a word: the hour. A wait of sched.Grace ends at the next hour.
type outbox struct {
	*alone
	x      *interleave.Run
	news   word.Uint32 // changes with all below
	hour   word.Uint32
	mu     word.Mutex // guards the fields below
	sends  []*posted
	vain   []uint32 // the hours at which waits in vain have begun
	broken bool
}

// posted is a send.
type posted struct {
	req    *backend.Request
	state  sendState
	hour   uint32 // when it is over
	waited bool   // for sched.Grace, in vain
	taken  bool   // by its receiver
}

type sendState uint8

const (
	sendPosted sendState = iota
	sendAsked            // canceled, and the receiver is asked
	sendMatched
	sendOver
)

const lastHour = 2

// hours returns a time at which no deadline is over by the clock of the machine.
func hours(n uint32) time.Time { return time.Date(2200, 1, 1, int(n), 0, 0, 0, time.UTC) }

func (b *outbox) Wake() { b.news.Add(1) }

func (b *outbox) Isend(r *backend.Request, _ []byte, _, _ int, _ backend.Mode) {
	b.sends = append(b.sends, &posted{req: r, hour: r.Owner.(*pending).limit.Ctx.(*hourly).hour})
}

func (b *outbox) Await(bound *backend.Bound, p backend.Pending) error {
	grace := bound != nil && bound.Timeout == sched.Grace
	began := b.hour.Load()
	for {
		news := b.news.Load()
		switch {
		case p.Ready():
			return nil
		case !grace:
			if err := bound.Err(time.Time{}); err != nil {
				return err
			}
		case b.hour.Load() > began, began == lastHour:
			b.mu.Lock()
			b.vain = append(b.vain, began)
			b.send(p).waited = true
			b.mu.Unlock()
			return backend.ErrTimeout
		}
		for b.news.Load() == news {
			word.Yield()
		}
	}
}

func (b *outbox) send(p backend.Pending) *posted {
	for _, s := range b.sends {
		if s.req == p {
			return s
		}
	}
	b.x.Errorf("a request that was never sent")
	return nil
}

// moves moves a send that has one of some states to another one, and reports whether it had.
func (b *outbox) moves(s *posted, err error, to sendState, from ...sendState) bool {
	b.mu.Lock()
	moves := slices.Contains(from, s.state)
	if moves {
		s.state = to
	}
	if moves && to == sendOver {
		s.taken = err == nil
		s.req.Finish(backend.Status{}, err)
	}
	b.mu.Unlock()
	if moves {
		b.Wake()
	}
	return moves
}

func (b *outbox) Cancel(r *backend.Request) bool {
	b.moves(b.send(r), nil, sendAsked, sendPosted)
	return false
}

func (b *outbox) GiveUp(r *backend.Request, err error) bool {
	s := b.send(r)
	b.mu.Lock()
	waited := s.waited || slices.ContainsFunc(b.vain, func(began uint32) bool { return s.hour <= began })
	b.mu.Unlock()
	if !waited {
		b.x.Errorf("a send is given up that was not over when a wait in vain began")
	}
	return b.moves(s, err, sendOver, sendAsked) || r.Ready()
}

func (b *outbox) Break(error) {
	b.mu.Lock()
	b.broken = slices.ContainsFunc(b.sends, func(s *posted) bool { return s.state >= sendMatched && s.waited })
	b.mu.Unlock()
	if !b.broken {
		b.x.Errorf("the communicator breaks, and no message that has matched was waited for")
	}
}

// hourly is a context that ends at an hour.
type hourly struct {
	context.Context
	b        *outbox
	hour     uint32
	canceled bool // it has no deadline
}

func (u *hourly) Done() <-chan struct{} { return closed } // there may be an end

func (u *hourly) Deadline() (time.Time, bool) { return hours(u.hour), !u.canceled }

func (u *hourly) Err() error {
	switch {
	case u.b.hour.Load() < u.hour:
		return nil
	case u.canceled:
		return context.Canceled
	}
	return context.DeadlineExceeded
}

// What the receiver does beside the end of a send.
var receivers = map[string]func(b *outbox, s *posted){
	"nothing": func(*outbox, *posted) {},
	"answers": func(b *outbox, s *posted) {
		for !b.moves(s, fault(backend.ErrCanceled, "not matched"), sendOver, sendAsked) && !s.req.Ready() {
			word.Yield()
		}
	},
	"matches": func(b *outbox, s *posted) { b.moves(s, nil, sendMatched, sendPosted, sendAsked) },
	"takes": func(b *outbox, s *posted) {
		if b.moves(s, nil, sendMatched, sendPosted, sendAsked) {
			b.moves(s, nil, sendOver, sendMatched)
		}
	},
}

// waiters end two sends. They call got with the result of a send.
var waiters = map[string]func(reqs []*Request, got func(i int, err error)){
	"Wait first": func(reqs []*Request, got func(int, error)) {
		_, err := reqs[0].Wait()
		got(0, err)
	},
	"Wait second": func(reqs []*Request, got func(int, error)) {
		_, err := reqs[1].Wait()
		got(1, err)
	},
	"WaitAll": func(reqs []*Request, got func(int, error)) {
		_ = newSet(slices.Clone(reqs)...).WaitAll()
		for i, q := range reqs {
			_, err := q.Wait()
			got(i, err)
		}
	},
	"WaitAny": func(reqs []*Request, got func(int, error)) {
		for {
			i, _, err := newSet(slices.Clone(reqs)...).WaitAny()
			if i < 0 {
				return
			}
			got(i, err)
		}
	},
	"Test": func(reqs []*Request, got func(int, error)) {
		_, done, err := reqs[0].Test()
		if _, again, _ := reqs[0].Test(); done && !again {
			got(0, errors.New("complete, and then not"))
		} else if done {
			got(0, err)
		}
	},
	"Cancel": func(reqs []*Request, got func(int, error)) {
		if err := reqs[0].Cancel(); err != nil {
			got(0, err)
		}
	},
}

// The first of two sends is over at the first hour, the second when their context ends, by a deadline or a cancellation. The
// receiver of the first takes the message, answers that it has not, or neither. Goroutines wait for the sends. A send ends in
// one way for all: with nil if its message was taken. Otherwise the communicator is broken only if the message had matched. A
// send is given up without a wait for the answer only if it was over when a wait in vain began.
func TestInterleaveSendsThatAreOver(t *testing.T) {
	defer func() { now = time.Now }()
	for _, p := range []struct {
		receiver string
		second   uint32 // the hour at which the context ends
		canceled bool
		waiters  []string
		most     int // preemptions
	}{
		{"nothing", 1, false, []string{"Wait first", "Wait second"}, 2},
		{"nothing", 2, false, []string{"Wait first", "Wait second"}, 2},
		{"nothing", 2, true, []string{"Wait first", "Wait second"}, 2},
		{"answers", 1, false, []string{"Wait first", "Cancel"}, 2},
		{"matches", 1, false, []string{"Wait first", "Wait first"}, 2},
		{"takes", 1, true, []string{"Wait first", "Test"}, 2},
		{"takes", 2, false, []string{"WaitAll", "WaitAny"}, 1},
	} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: cmp.Or(interleave.Long(p.most), -1)}, func(x *interleave.Run) {
				b := &outbox{alone: newAlone(), x: x}
				w := world(b)
				x.Name(&b.news, "news")
				x.Name(&b.hour, "hour")
				x.Name(&w.core.job.vainWaits.last, "vain waits")
				now = func() time.Time { return hours(b.hour.Load()) }
				ctx := &hourly{context.Background(), b, p.second, p.canceled}
				var reqs []*Request
				for _, limit := range []*hourly{{ctx, b, 1, false}, ctx} {
					c := &Comm{core: w.core, bound: &backend.Bound{Ctx: limit}, ctx: ctx}
					q, err := c.Isend("isend", datatype.Number(backend.Int64), make([]byte, 8), nil, 1, 1, backend.Synchronous, nil)
					if err != nil {
						panic(err)
					}
					x.Name(&q.word, "request %d", len(reqs))
					reqs = append(reqs, q)
				}
				results := make([][]error, len(reqs))
				for _, name := range p.waiters {
					x.Go(name, func() {
						waiters[name](reqs, func(i int, err error) { results[i] = append(results[i], err) })
					})
				}
				x.Go("receiver", func() { receivers[p.receiver](b, b.sends[0]) })
				x.Go("clock", func() {
					for hour := range uint32(lastHour) {
						b.hour.Store(hour + 1)
						b.Wake()
					}
				})
				x.Check(func() error {
					for i, s := range b.sends {
						for _, err := range results[i] {
							switch {
							case err != results[i][0]:
								return fmt.Errorf("send %d ends with %v, and with %v", i, results[i][0], err)
							case err == nil && !s.taken || err != nil && s.taken && !b.broken:
								return fmt.Errorf("send %d ends with %v; its message was taken: %v", i, err, s.taken)
							case err != nil && !errors.Is(err, backend.ErrTimeout) && !errors.Is(err, backend.ErrCanceled):
								return err
							}
						}
					}
					return nil
				})
			})
		})
	}
}
