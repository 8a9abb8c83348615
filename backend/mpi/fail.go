//go:build cgo && linux

package mpi

import (
	"fmt"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// fault returns the error of a code.
func (c *comm) fault(code libmpi.Code) error {
	return c.heard(libmpi.Error(code))
}

// noticeSize is how long a notice is at most: a sentinel's code and a text, short
// enough to be sent at once.
const noticeSize = 512

// Break makes the communicator unusable here, and tells the others, who hear of it
// when they wait with a limit, for a request or for a schedule; not in a blocking
// call of the library's.
func (c *comm) Break(err error) {
	if !c.breaks(err) {
		return
	}
	if !c.reenter() {
		return
	}
	defer c.leave()
	f := c.broken.Load()
	n := append([]byte{backend.Code(f)}, f.Text...)
	n = n[:min(len(n), noticeSize)]
	for r := range c.size {
		if r != c.rank {
			c.p.engine.tell(c, n, r)
		}
	}
}

// breaks marks the communicator broken and ends what is pending. false: it was
// already, or is closed.
func (c *comm) breaks(err error) bool {
	f := asFault(err)
	if c.state.Load() == closed || !c.broken.CompareAndSwap(nil, f) {
		return false
	}
	c.state.CompareAndSwap(nil, &ended{&backend.Broken{Cause: f}})
	c.drop(&backend.Broken{Cause: f})
	return true
}

func asFault(err error) *backend.Fault {
	if b, ok := err.(*backend.Broken); ok {
		err = b.Cause
	}
	if f, ok := err.(*backend.Fault); ok {
		return f
	}
	s := backend.Sentinel(backend.Code(err))
	return &backend.Fault{Sentinel: s, Text: strings.TrimPrefix(err.Error(), s.Error()+": ")}
}

// lostEvery is how often the library is asked at most who is lost, which takes memory.
const lostEvery = time.Millisecond

// hear looks for a notice of another rank. Where a rank of the communicator is lost, or it was revoked, a
// library that recovers says so instead.
func (c *comm) hear() {
	if c.size == 1 || c.enter() != nil {
		return
	}
	defer c.leave()
	if !c.hearing.TryLock() { // of two that saw one notice, the slower would wait for ever
		return
	}
	defer c.hearing.Unlock()
	var st libmpi.Status
	if code := c.ctl.Probe(backend.AnySource, c.p.folds.notice(), false, &st); code != 0 {
		_ = c.heard(libmpi.Error(code))
		return
	}
	if st.Flag == 0 {
		if now := time.Now(); c.p.recovers && now.Sub(c.asked) >= lostEvery {
			c.asked = now
			c.Lost() // the looks of Open MPI 5 at messages say nothing of losses
		}
		return
	}
	buf := make([]byte, noticeSize)
	if c.ctl.Recv(buf, int(st.Source), c.p.folds.notice(), &st) != 0 || st.Bytes < 1 {
		return
	}
	s := backend.Sentinel(buf[0])
	if s == nil {
		s = backend.ErrInternal
	}
	c.breaks(&backend.Fault{Sentinel: s, Text: string(buf[1:st.Bytes])})
}

// Broken returns what the communicator was broken with.
func (c *comm) Broken() error {
	if c.state.Load() == nil {
		c.hear()
	}
	if f := c.broken.Load(); f != nil {
		return f
	}
	return nil
}

// Wake does nothing: whoever waits with a limit looks at it all the time.
func (c *comm) Wake() {}

// Abort ends the job, this process included.
func (c *comm) Abort(code int) error {
	if code < 1 || code > 255 {
		code = 1 // what a process can end with
	}
	if rc := libmpi.Abort(code); rc != 0 {
		return c.fault(rc)
	}
	return nil
}

// truncated is the error of a receive that the message was too long for.
func truncated(got int64, room int) error {
	text := fmt.Sprintf("the message is longer than the %d bytes of the buffer", room)
	if got > int64(room) {
		text = fmt.Sprintf("the message has %d bytes, the buffer %d", got, room)
	}
	return &backend.Fault{Sentinel: backend.ErrTruncate, Text: text}
}
