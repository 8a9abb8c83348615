package engine

import (
	"runtime"
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

// A burst of messages to one rank: the first are written at once. The others are kept back, and written without another
// call of the program.
func TestBurstIsWrittenWithoutAnotherCall(t *testing.T) {
	bell := newTestSleeper()
	e := New(Config{Peers: []Peer{{}, {Node: 1}}, Sleeper: bell, Manual: true})
	e.burstGap = time.Hour // however slow the machine is
	end, other := testPair(bell, newTestSleeper())
	e.Connect(1, end)
	w, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	const more = 3
	for tag := range burstMin + more {
		q := &backend.Request{Owner: t}
		q.Begin()
		w.Isend(q, nil, 1, tag, backend.Standard)
		if q.Ready() != (tag < burstMin) {
			t.Errorf("message %d: complete is %v", tag, q.Ready())
		}
	}
	frames := func(from, to int) {
		for tag := from; tag < to; tag++ {
			h, ok := other.header()
			for end := time.Now().Add(time.Minute); !ok && time.Now().Before(end); h, ok = other.header() {
				runtime.Gosched()
			}
			if !ok || int(h.Tag) != tag {
				t.Fatalf("frame %d is %+v, %v", tag, h, ok)
			}
		}
	}
	frames(0, burstMin)
	if h, ok := other.header(); ok {
		t.Errorf("frame %+v is not kept back", h)
	}
	go e.flusher()
	defer e.endFlusher()
	frames(burstMin, burstMin+more)
}

// A burst that one look at the links does not write to its end is written without another call too.
func TestLongBurstIsWrittenWithoutAnotherCall(t *testing.T) {
	for _, messages := range []int{burstMin + burstKeep/2, 3 * burstKeep} {
		bell := newTestSleeper()
		e := New(Config{Peers: []Peer{{}, {Node: 1}}, Sleeper: bell, Manual: true})
		e.burstGap = time.Hour // however slow the machine is
		end, _ := testPair(bell, newTestSleeper())
		e.Connect(1, end)
		w, err := e.Start()
		if err != nil {
			t.Fatal(err)
		}
		all := make([]backend.Request, messages)
		for tag := range all {
			all[tag].Owner = t
			all[tag].Begin()
			w.Isend(&all[tag], make([]byte, 200), 1, tag, backend.Standard)
		}
		go e.flusher()
		for tag := range all {
			for end := time.Now().Add(time.Minute); !all[tag].Ready(); runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatalf("message %d of %d is not written", tag, messages)
				}
			}
		}
		e.endFlusher()
	}
}

// endless is a link that has room for every frame.
type endless struct {
	*testLink
	frames int
}

func (l *endless) Write(_ *frame.Header, body []byte, _ int) (int, error) {
	l.frames++
	return frame.HeaderSize + len(body), nil
}

// A burst behind a long message, for which there is always room: no Isend writes all of it with the lock held.
func TestBurstDoesNotWriteLongMessage(t *testing.T) {
	bell := newTestSleeper()
	e := New(Config{Peers: []Peer{{}, {Node: 1}}, Sleeper: bell, Manual: true})
	e.burstGap = time.Hour
	end, _ := testPair(bell, newTestSleeper())
	link := &endless{testLink: end}
	e.Connect(1, link)
	w, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 28 // 512 frames
	all := make([]backend.Request, burstMin+2*burstKeep)
	for i := range all {
		all[i].Owner = t
		all[i].Begin()
	}
	w.Isend(&all[0], make([]byte, size), 1, 1, backend.Standard)
	e.mu.Lock()
	for _, s := range e.slots {
		if s.op != nil {
			err = e.peers[1].endFrame(&frame.Header{Kind: frame.ClearToSend, Token: s.op.token, Length: size, Reply: 1})
		}
	}
	e.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(all); i++ {
		before := link.frames
		w.Isend(&all[i], make([]byte, 8), 1, 2, backend.Standard)
		if n := link.frames - before; n > 2*writeMost+burstKeep {
			t.Fatalf("Isend %d writes %d frames", i, n)
		}
	}
	go e.flusher()
	defer e.endFlusher()
	for i := range all {
		for end := time.Now().Add(time.Minute); !all[i].Ready(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("message %d is not written", i)
			}
		}
	}
}
