package engine

import (
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// A goroutine has kept a frame back. While another one calls a Notify function, the first one writes its frame, and then
// the function keeps one back: it is written when the function has returned.
func TestFrameKeptBackByNotifyIsWritten(t *testing.T) {
	c, _, other := raw(t, time.Hour)
	exchange := func(tag int) {
		recv, send := &backend.Request{}, &backend.Request{}
		recv.Begin()
		send.Begin()
		c.Exchange(recv, send, nil, nil, 1, 1, tag)
	}
	exchange(1)
	q := &backend.Request{Notify: func(*backend.Request) {
		c.Flush()
		exchange(3)
	}}
	q.Begin()
	c.Isend(q, nil, 1, 2, backend.Standard)
	for tag := int32(1); tag <= 3; tag++ {
		if h, ok := other.header(); !ok || h.Kind != frame.Eager || h.Tag != tag {
			t.Errorf("frame %d is %v with tag %d, %v", tag, h.Kind, h.Tag, ok)
		}
	}
}
