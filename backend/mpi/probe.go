//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// matched is a message that Mprobe has taken out of the library's queues.
type matched struct {
	m  libmpi.Message
	st backend.Status
}

// Probe implements backend.Comm.
func (c *comm) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	var st libmpi.Status
	found, err := c.look(b, block, func(wait bool) libmpi.Code {
		on, t := c.on(tag)
		return on.Probe(source, t, wait, &st)
	}, &st)
	return backend.Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: int(st.Bytes)}, found, err
}

// Mprobe implements backend.Comm.
func (c *comm) Mprobe(b *backend.Bound, source, tag int, block bool) (backend.Matched, backend.Status, bool, error) {
	var st libmpi.Status
	m := new(matched)
	found, err := c.look(b, block, func(wait bool) libmpi.Code {
		on, t := c.on(tag)
		return on.Mprobe(source, t, wait, &m.m, &st)
	}, &st)
	if !found || err != nil {
		return nil, backend.Status{}, false, err
	}
	m.st = backend.Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: int(st.Bytes)}
	return m, m.st, true, nil
}

// look probes until there is something.
func (c *comm) look(b *backend.Bound, block bool, probe func(wait bool) libmpi.Code, st *libmpi.Status) (bool, error) {
	if err := c.usable(); err != nil {
		return false, err
	}
	// Receives that wait were posted before and take what is theirs.
	c.Poll()
	if block && !c.p.polled && !b.Limited() && c.p.engine.queued.Load() == 0 {
		if code := probe(true); code != 0 {
			return false, c.fault(code)
		}
		return true, nil
	}
	w := newWait(b)
	for {
		if code := probe(false); code != 0 {
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
