//go:build cgo && linux

package mpi

import (
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// matched is a message that Mprobe has taken from the library's queues.
type matched struct {
	m  libmpi.Message
	st backend.Status
}

// taken holds the messages that Mprobe has taken and whose receive has not begun. The library cannot be finalized while
// it has such a message, so those that the program never receives are discarded like those that it never took.
type taken struct {
	sync.Mutex
	all map[*matched]struct{}
}

func (t *taken) add(m *matched) {
	t.Lock()
	defer t.Unlock()
	if t.all == nil {
		t.all = make(map[*matched]struct{})
	}
	t.all[m] = struct{}{}
}

func (t *taken) remove(m *matched) {
	t.Lock()
	defer t.Unlock()
	delete(t.all, m)
}

// Probe implements backend.Comm.
func (c *comm) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	var st libmpi.Status
	found, err := c.look(b, block, source, tag, nil, &st)
	return backend.Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: int(st.Bytes)}, found, err
}

// Mprobe implements backend.Comm.
func (c *comm) Mprobe(b *backend.Bound, source, tag int, block bool) (backend.Matched, backend.Status, bool, error) {
	var st libmpi.Status
	m := new(matched)
	found, err := c.look(b, block, source, tag, &m.m, &st)
	if !found || err != nil {
		return nil, backend.Status{}, false, err
	}
	m.st = backend.Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: int(st.Bytes)}
	c.taken.add(m)
	return m, m.st, true, nil
}

// look probes until it finds a message. If m is not nil it takes the message.
func (c *comm) look(b *backend.Bound, block bool, source, tag int, m *libmpi.Message, st *libmpi.Status) (bool, error) {
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.leave()
	c.Poll()
	on, t := c.on(tag)
	if block && !c.requests(b) {
		var code libmpi.Code
		if m == nil {
			code = on.Probe(source, t, st)
		} else {
			code = on.Mprobe(source, t, m, st)
		}
		if code != 0 {
			return false, c.fault(code)
		}
		return true, nil
	}
	w := newWait(b)
	for {
		if code := c.probeBehind(c.queueFor(tag), source, t, m, st); code != 0 {
			return false, c.fault(code)
		}
		if st.Flag != 0 {
			return true, nil
		}
		if !block {
			return false, nil
		}
		c.Poll()
		if err := w.pause(c); err != nil {
			return false, err
		}
		if err := c.usable(); err != nil {
			return false, err
		}
	}
}

// probeNow looks for a message without waiting. If m is not nil it takes the message.
func probeNow(on libmpi.Comm, source, tag int, m *libmpi.Message, st *libmpi.Status) libmpi.Code {
	if m == nil {
		return on.Iprobe(source, tag, st)
	}
	return on.Improbe(source, tag, m, st)
}

// probeBehind looks for a message that matches none of the waiting receives, which were posted
// before and come first.
func (c *comm) probeBehind(q *queue, source, tag int, m *libmpi.Message, st *libmpi.Status) libmpi.Code {
	for {
		q.mu.Lock()
		if len(q.ops) == 0 {
			code := probeNow(q.on, source, tag, m, st)
			q.mu.Unlock()
			return code
		}
		code := q.on.Iprobe(source, tag, st)
		if code != 0 || st.Flag == 0 {
			q.mu.Unlock()
			return code
		}
		at := q.first(st)
		if at < 0 {
			if m != nil {
				code = q.on.Improbe(int(st.Source), int(st.Tag), m, st)
			}
			q.mu.Unlock()
			return code
		}
		f, ok := c.matchAt(q, at)
		q.mu.Unlock()
		if ok {
			c.goOn(&f)
		} else if f.code != 0 {
			return f.code
		}
	}
}
