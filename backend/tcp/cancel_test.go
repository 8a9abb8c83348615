//go:build linux || darwin

package tcp

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

func init() {
	// Long sends are taken back at the moment at which their receives are posted: each either
	// arrives whole or not at all, and a receive whose message was taken back gets the next one, in
	// the order posted. Several goroutines do so at a time.
	programs["withdraw"] = func(c backend.Comm) error {
		const rounds, threads, n = 300, 3, engine.EagerMax + 1
		b := &backend.Bound{Timeout: time.Minute}
		var all sync.WaitGroup
		errs := make([]error, threads)
		for k := range threads {
			all.Go(func() {
				errs[k] = func() error {
					if c.Rank() == 0 {
						return withdrawing(c, b, k, rounds, n)
					}
					return receiving(c, b, k, rounds, n)
				}()
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
}

// withdrawing sends numbered messages of which it tries to take every other back, and then says
// which have gone.
func withdrawing(c backend.Comm, b *backend.Bound, tag, rounds, n int) error {
	q := &backend.Request{}
	went := make([]byte, rounds)
	for i := range rounds {
		q.Begin()
		c.Isend(q, ranktest.Fill(make([]byte, n), i), 1, tag, backend.Synchronous)
		if i%2 == 0 {
			for range i % 7 {
				c.Poll()
			}
			c.Cancel(q)
		}
		if err := c.Await(b, q); err != nil {
			return err
		}
		switch {
		case q.Err == nil:
			went[i] = 1
		case !errors.Is(q.Err, backend.ErrCanceled) || i%2 == 1:
			return fmt.Errorf("send %d: %w", i, q.Err)
		}
	}
	if err := c.Send(b, went, 1, 100+tag, backend.Standard); err != nil {
		return err
	}
	_, err := c.Recv(b, nil, 1, 200+tag) // leaving ends the receives of the other
	return err
}

func receiving(c backend.Comm, b *backend.Bound, tag, rounds, n int) error {
	// Two receives are posted at any time.
	var posted [2]backend.Request
	var bufs [2][]byte
	post := func(k int) {
		bufs[k] = make([]byte, n)
		posted[k].Begin()
		c.Irecv(&posted[k], bufs[k], 0, tag)
	}
	post(0)
	post(1)
	went := make([]byte, rounds)
	done := &backend.Request{}
	done.Begin()
	c.Irecv(done, went, 0, 100+tag)
	var got [][]byte
	for k := 0; ; k = 1 - k {
		if err := c.Await(b, either{&posted[k], done}); err != nil {
			return err
		}
		if !posted[k].Ready() {
			break // it was for a message that does not come
		}
		if posted[k].Err != nil {
			return posted[k].Err
		}
		got = append(got, bufs[k])
		post(k)
	}
	if done.Err != nil {
		return done.Err
	}
	for i, yes := range went {
		if yes == 0 {
			continue
		}
		if len(got) == 0 {
			return fmt.Errorf("message %d was sent and has not come", i)
		}
		if string(got[0]) != string(ranktest.Fill(make([]byte, n), i)) {
			return fmt.Errorf("message %d is another one, or damaged", i)
		}
		got = got[1:]
	}
	if len(got) != 0 {
		return fmt.Errorf("%d messages came that were taken back", len(got))
	}
	for k := range posted {
		if !c.Cancel(&posted[k]) {
			return fmt.Errorf("receive %d has matched nothing and is not taken back", k)
		}
	}
	return c.Send(b, nil, 0, 200+tag, backend.Standard)
}

// either is ready when one of two requests is.
type either struct{ a, b *backend.Request }

func (e either) Ready() bool { return e.a.Ready() || e.b.Ready() }

func TestManySendsAreWithdrawn(t *testing.T) {
	launch(t, "withdraw", 2)
	launch(t, "withdraw", 2, "TCP_TEST_CROWDED=1")
}
