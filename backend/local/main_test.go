package local

import (
	"os"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Run(m)) }

// ranks runs body on every rank of a job of n and closes the job.
func ranks(t testing.TB, n int, body func(t testing.TB, c *Comm)) {
	t.Helper()
	each(New(n), func(c *Comm) {
		defer c.Close()
		body(t, c)
	})
}

func each(comms []backend.Comm, f func(c *Comm)) {
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() { f(c.(*Comm)) })
	}
	wg.Wait()
}

// start gives start a begun request.
func start(f func(r *backend.Request)) *backend.Request {
	r := new(backend.Request)
	r.Begin()
	f(r)
	return r
}

// wait awaits a request and returns its outcome.
func (c *Comm) wait(t testing.TB, r *backend.Request) (backend.Status, error) {
	t.Helper()
	if err := c.Await(nil, r); err != nil {
		t.Errorf("rank %d: await: %v", c.rank, err)
	}
	return r.Status, r.Err
}

func (c *Comm) isend(buf []byte, dest, tag int, mode backend.Mode) *backend.Request {
	return start(func(r *backend.Request) { c.Isend(r, buf, dest, tag, mode) })
}

func (c *Comm) irecv(buf []byte, source, tag int) *backend.Request {
	return start(func(r *backend.Request) { c.Irecv(r, buf, source, tag) })
}

// sync is a barrier by messages with a tag that no wildcard takes, so that tests of
// messages do not depend on collectives.
func (c *Comm) sync(t testing.TB) {
	t.Helper()
	const tag = -1
	for dist := 1; dist < c.Size(); dist *= 2 {
		r := c.irecv(nil, (c.rank-dist+c.Size())%c.Size(), tag)
		if err := c.Send(nil, nil, (c.rank+dist)%c.Size(), tag, backend.Standard); err != nil {
			t.Errorf("sync: %v", err)
		}
		if _, err := c.wait(t, r); err != nil {
			t.Errorf("sync: %v", err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
