package acceltest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// long is a length for copies that should still be pending when the next starts.
const long = 2 << 20

// testEvent checks that an event occurs when the work before it is done, also when it is recorded
// again.
func testEvent(r rig) {
	a, pin, got := r.alloc(long), r.pin(long), r.pin(long)
	e := r.event()
	s := r.stream()
	if done, err := e.Done(); !done || err != nil {
		r.Errorf("an event that was never recorded: done %t, %v", done, err)
	}
	r.ok(e.Sync())
	r.ok(s.Follow(e))
	for seed := range uint64(6) {
		noise(seed, pin)
		r.ok(s.ToDevice(a, pin))
		r.ok(s.ToHost(got, a))
		r.ok(s.Record(e))
		if seed%2 == 0 {
			r.ok(e.Sync())
		} else {
			for {
				done, err := e.Done()
				r.ok(err)
				if done {
					break
				}
				runtime.Gosched()
			}
		}
		if done, err := e.Done(); !done || err != nil {
			r.Errorf("an event that has come: done %t, %v", done, err)
		}
		same(r, "before the event", got, pin)
	}
}

// testFollow checks that a stream waits for another's event, in a ring of several streams.
func testFollow(r rig) {
	const streams, rounds = 4, 3
	var memory [streams]accel.Address
	var s [streams]accel.Stream
	var e [streams]accel.Event
	for i := range streams {
		memory[i], e[i] = r.alloc(long), r.event()
	}
	first, last := r.pin(long), r.pin(long)
	for i := range streams {
		s[i] = r.stream()
	}
	for round := range uint64(rounds) {
		noise(round, first)
		r.ok(s[0].ToDevice(memory[0], first))
		r.ok(s[0].Record(e[0]))
		for i := 1; i < streams; i++ {
			r.ok(s[i].Follow(e[i-1]))
			r.ok(s[i].Within(memory[i], memory[i-1], long))
			r.ok(s[i].Record(e[i]))
		}
		r.ok(s[0].Follow(e[streams-1]))
		r.ok(s[0].ToHost(last, memory[streams-1]))
		r.ok(s[0].Sync())
		same(r, fmt.Sprintf("round %d", round), last, first)
	}
}

// testFollowOlder checks that a stream follows an event as it was last recorded. Recording it
// again, behind work that waits for the stream itself, blocks nothing.
func testFollowOlder(r rig) {
	a, b := r.alloc(long), r.alloc(long)
	e, back := r.event(), r.event()
	pin, got := noise(1, r.pin(long)), r.pin(long)
	s, other := r.stream(), r.stream()
	r.ok(s.ToDevice(a, pin))
	r.ok(s.Record(e))
	r.ok(other.Follow(e))
	r.ok(other.Within(b, a, long))
	r.ok(other.Record(back))
	r.ok(s.Follow(back))
	r.ok(s.ToHost(got, b))
	r.ok(s.Record(e))
	r.ok(other.Sync())
	r.ok(e.Sync())
	same(r, "there and back", got, pin)
}

// testAdopt checks that the default stream and adopted streams work like others.
func testAdopt(r rig) {
	a, b := r.alloc(long), r.alloc(long)
	pin, got := noise(4, r.pin(long)), r.pin(long)
	mine := r.stream()
	for _, s := range []accel.Stream{r.dev.Adopt(0), r.dev.Adopt(mine.Handle())} {
		r.ok(s.ToDevice(a, pin))
		r.ok(s.Within(b, a, long))
		r.ok(s.Close()) // does nothing
		r.ok(s.ToHost(got, b))
		r.ok(s.Sync())
		same(r, "by an adopted stream", got, pin)
		clear(got)
	}
	if h := r.dev.Adopt(mine.Handle()).Handle(); h != mine.Handle() {
		r.Errorf("the handle %#x was adopted as %#x", mine.Handle(), h)
	}
	if h := r.dev.Adopt(0).Handle(); h != 0 {
		r.Errorf("the default stream's handle is %#x", h)
	}
	// A stream and its adopted form have one order.
	adopted := r.dev.Adopt(mine.Handle())
	r.ok(mine.ToDevice(a, pin))
	r.ok(adopted.Within(b, a, long))
	r.ok(mine.ToHost(got, b))
	r.ok(adopted.Sync())
	same(r, "by one stream under two names", got, pin)
}

// testThreads uses everything at the same time from goroutines locked to threads and from others. Half of them share a
// stream.
func testThreads(r rig) {
	const workers, rounds, n = 16, 20, 50_001
	shared := r.stream()
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			if w%2 == 0 { // the thread ends with the goroutine
				runtime.LockOSThread()
			}
			for k := range rounds {
				if err := everything(r.dev, shared, w%4 < 2, uint64(w*1000+k), n+w); err != nil {
					r.Errorf("worker %d, round %d: %v", w, k, err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	group.Wait()
}

// everything makes, uses and frees one of everything. With own it makes a stream too, instead of sharing one.
func everything(dev accel.Device, s accel.Stream, own bool, seed uint64, n int) (err error) {
	a, err1 := dev.Alloc(n)
	pin, err2 := dev.Pin(2 * n)
	e, err3 := dev.Event()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if own {
		if s, err = dev.Stream(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	defer func() { err = errors.Join(err, dev.Free(a), dev.Unpin(pin), e.Close()) }()
	noise(seed, pin[:n])
	if err := errors.Join(s.ToDevice(a, pin[:n]), s.ToHost(pin[n:], a), s.Record(e), e.Sync()); err != nil {
		return err
	}
	if room, err := dev.Room(a + 1); err != nil || room != n-1 {
		return fmt.Errorf("room of %d bytes, %v, want %d", room, err, n-1)
	}
	if !bytes.Equal(pin[:n], pin[n:]) {
		return fmt.Errorf("%d bytes came back as others", n)
	}
	return nil
}
