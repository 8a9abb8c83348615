//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// Controls are the short messages of this backend on ctl: notices, reports and answers about retired communicators,
// messages of failing ranks, rounds of drain, and transactions. Each kind has one tag (type tags).

// tell sends a message without waiting for it. It returns false if the library cannot.
func (e *engine) tell(c *comm, text []byte, dest, tag int) bool {
	o := &op{c: c, buf: text}
	var st libmpi.Status
	code := c.ctl.Isend(text, dest, tag, backend.Standard, &o.h, &st)
	if code == 0 && c.p.tags.counted(tag) {
		c.gate.Count(1)
	}
	if code != 0 || st.Flag != 0 {
		o.complete(backend.Status{}, nil)
		return code == 0
	}
	e.watch(o)
	return true
}

// arriving is a message that tell has sent, while the library receives it.
type arriving struct {
	req  backend.Request
	m    []byte // nil: there is none
	from int
}

// receiveControl receives a message that tell has sent, if one has arrived. It does not wait: with some settings of the
// user's the library sends even short messages by rendezvous, and the sender may be stopped. Calls with the same tag
// exclude each other.
func (c *comm) receiveControl(tag int) (m []byte, from int, ok bool) {
	a := &c.arriving[tag-c.p.tags.notice()]
	if a.m == nil {
		var msg libmpi.Message
		var st libmpi.Status
		if code := c.ctl.Improbe(backend.AnySource, tag, &msg, &st); code != 0 || st.Flag == 0 {
			c.looked(code)
			return nil, 0, false
		}
		if c.p.tags.counted(tag) {
			c.gate.Count(-1)
		}
		a.m, a.from = make([]byte, st.Bytes), int(st.Source)
		a.req.Begin()
		c.receive(&op{req: &a.req, c: c, buf: a.m, receives: true, fate: unwanted}, msg, st.Bytes)
	}
	if !a.req.Ready() {
		c.Poll()
	}
	if !a.req.Ready() {
		return nil, 0, false
	}
	m, a.m = a.m, nil
	return m, a.from, a.req.Err == nil
}
