//go:build linux

package memlink

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"unsafe"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wait"
)

// The offsets in shared memory are computed from constants; the compiler's sizes must be the same.
func TestLayoutHasCompilersSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"cell", unsafe.Sizeof(cell{}), cellSize},
		{"desc", unsafe.Sizeof(desc{}), descSize},
		{"ring", unsafe.Sizeof(ring{}), ringSize},
		{"Mailbox", unsafe.Sizeof(Mailbox{}), MailboxSize},
	} {
		if c.got != c.want {
			t.Errorf("%s has %d bytes, the layout has %d", c.name, c.got, c.want)
		}
	}
}

// end is one end of a link, and the frames that have arrived there.
type end struct {
	*Link
	in     frame.Arrival
	frames []frame.Header
	bodies [][]byte
	bells  int // how often it has woken the other end
}

func (e *end) Begin(a *frame.Arrival) error {
	e.bodies = append(e.bodies, make([]byte, a.Left))
	a.Dst = e.bodies[len(e.bodies)-1]
	return nil
}

func (e *end) End(a *frame.Arrival) error {
	e.frames = append(e.frames, a.Head)
	return nil
}

// read reads once.
func (e *end) read() (bool, error) { return e.Read(&e.in) }

// pair returns the two ends of a link in this process.
func pair(t testing.TB, cfg Config) (a, b *end) {
	t.Helper()
	return pairIn(memory(t, cfg.Data), cfg)
}

// memory returns the memory of a link.
func memory(t testing.TB, data int) *shmem.Segment {
	t.Helper()
	seg, err := shmem.Create("memlink-test", 2*Size(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	return seg
}

// processOf returns a process with a number, of which this one has the proof.
func processOf(pid int) *shmem.Process {
	p := shmem.Self().Process()
	p.PID = pid
	return p
}

func pairIn(seg *shmem.Segment, cfg Config) (a, b *end) {
	size := Size(cfg.Data)
	clear(shmem.Slice[byte](seg, 0, 2*size))
	cfg.Segment = seg
	if cfg.Peer == nil {
		cfg.Peer = processOf(os.Getpid())
	}
	var asleep wait.Bell // both ends always are
	asleep.Arm()
	var mailboxes [2]Mailbox
	make := func(out, in int) *end {
		e, cfg := &end{}, cfg
		cfg.Out, cfg.In, cfg.Asleep, cfg.Bell = out, in, &asleep, func() { e.bells++ }
		cfg.Says, cfg.Hears = &mailboxes[out/size], &mailboxes[in/size]
		e.Link = New(cfg)
		e.in.Receiver = e
		return e
	}
	return make(0, size), make(size, 0)
}

// write writes a frame, and lets the other end read whenever there is no room.
func write(t testing.TB, from, to *end, h frame.Header, body []byte) {
	t.Helper()
	for n := 0; n < frame.HeaderSize+len(body); {
		k, err := from.Write(&h, body, n)
		if err != nil || k < n {
			t.Fatalf("writing %v from byte %d: %d, %v", h.Kind, n, k, err)
		}
		if k == n {
			if moved, err := to.read(); !moved || err != nil {
				t.Fatalf("no room for %v at byte %d, and reading gives %v, %v", h.Kind, n, moved, err)
			}
		}
		n = k
	}
}

// readAll reads until nothing is left.
func readAll(t testing.TB, e *end) {
	t.Helper()
	for {
		if moved, err := e.read(); err != nil {
			t.Fatal(err)
		} else if !moved {
			return
		}
	}
}

// pattern returns n bytes that depend on i.
func pattern(n, i int) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(k*7 + k>>8 + i*13)
	}
	return b
}

// A faulty process may write any number into its mailbox.
func TestInvalidMailboxIsErrFrame(t *testing.T) {
	for _, put := range []uint64{1, 1 << 20, 1 << 63, 1<<64 - 1} {
		a, b := pair(t, Config{Data: 4096, Make: func() error { return nil }})
		a.cfg.Says.put.Store(put)
		copy(a.cfg.Says.data[:], bytes.Repeat([]byte{255}, MailboxSize))
		if _, err := b.read(); !errors.Is(err, frame.ErrFrame) || len(b.frames) != 0 {
			t.Errorf("%d bytes posted: %v, with %d frames; want ErrFrame", put, err, len(b.frames))
		}
	}
}

// A mailbox that has carried 4 GiB is full of notices, which arrive as they were.
func TestMailboxCarriesMoreThan4GiB(t *testing.T) {
	a, b := pair(t, Config{Data: 4096, Make: func() error { return nil }})
	a.cfg.Says.put.Store(1<<32 - 240)
	a.cfg.Says.taken.Store(1<<32 - 240)
	const n = 40
	for i := range n {
		write(t, a, b, frame.Header{Kind: frame.Closed, Context: uint32(i)}, nil)
	}
	readAll(t, b)
	for i, h := range b.frames {
		if h.Kind != frame.Closed || h.Context != uint32(i) {
			t.Errorf("notice %d has arrived as %v", i, h)
		}
	}
	if len(b.frames) != n {
		t.Errorf("%d notices have arrived, want %d", len(b.frames), n)
	}
}

// Two ranks without rings exchange notices. The first message makes rings, once, in both directions.
func TestFirstMessageMakesRings(t *testing.T) {
	made, full := 0, errors.New("full")
	a, b := pair(t, Config{Data: 4096, Make: func() error { made++; return full }})
	for range 40 {
		write(t, a, b, frame.Header{Kind: frame.Heartbeat}, nil) // the first one says it all
	}
	var want [][]byte
	for n := range 50 { // more than fit
		text := pattern(13*n, n)
		write(t, a, b, frame.Header{Kind: frame.Broken, Context: uint32(n), Tag: int32(-n)}, text)
		want = append(want, text[:min(len(text), len(Mailbox{}.data)-noticeHead)])
	}
	if readAll(t, b); len(b.frames) != 1+len(want) || b.frames[0].Kind != frame.Heartbeat {
		t.Fatalf("%v has arrived, want one heartbeat and %d notices", b.frames, len(want))
	}
	for n, text := range want {
		if h := b.frames[1+n]; h != (frame.Header{Kind: frame.Broken, Context: uint32(n), Tag: int32(-n), Length: uint64(len(text))}) || !bytes.Equal(b.bodies[1+n], text) {
			t.Errorf("notice %d has arrived as %v, %q", n, h, b.bodies[1+n])
		}
	}
	if _, ok := b.Announce(new(Transfer), nil); ok || b.Make() != full || b.Send(0, 0, 0, nil, true) || made != 2 {
		t.Errorf("without memory: announced %v, made %d times", ok, made)
	}
	b.frames, full = nil, nil
	write(t, b, a, frame.Header{Kind: frame.Closed}, nil)
	if err := b.Make(); err != nil {
		t.Fatal(err)
	}
	for range cells {
		write(t, b, a, frame.Header{Kind: frame.Eager}, nil)
	}
	readAll(t, a)
	write(t, a, b, frame.Header{Kind: frame.Eager}, nil)
	a.Finish(true)
	readAll(t, b)
	for range leftEvery {
		b.read()
	}
	if made != 3 || len(a.frames) != 1+cells || a.frames[0].Kind != frame.Closed || len(b.frames) != 2 || b.frames[0].Kind != frame.Eager || b.frames[1].Kind != frame.Goodbye {
		t.Errorf("made %d times; %v has arrived, and %v", made, a.frames, b.frames)
	}
}

func TestFramesOfEveryLengthArriveInOrder(t *testing.T) {
	for _, data := range []int{4096, 64 << 10, 1 << 20} {
		a, b := pair(t, Config{Data: data})
		var want []frame.Header
		var bodies [][]byte
		put := func(h frame.Header) {
			var body []byte
			if h.Kind == frame.Eager || h.Kind == frame.Data {
				body = pattern(int(h.Length), len(want))
			}
			want, bodies = append(want, h), append(bodies, body)
			write(t, a, b, h, body)
		}
		for range 3 { // around the rings
			for i, n := range []int{0, 1, 28, 29, 44, 45, 4096, a.piece - 1, a.piece, a.piece + 1, 5*a.piece + 3, frame.MaxPayload} {
				n := uint64(n)
				put(frame.Header{Kind: frame.Eager, Context: 7, Elems: 0xffff, Tag: -5, Length: n})
				put(frame.Header{Kind: frame.ReadyToSend, Context: 1<<32 - 1, Tag: 1<<31 - 1, Length: lengthMax, Token: 1<<64 - 1})
				put(frame.Header{Kind: frame.Data, Length: n, Token: 1 << 63, Offset: 1 << 40})
				put(frame.Header{Kind: frame.ClearToSend, Length: 1 << 40, Token: uint64(i), Reply: 1<<64 - 2})
				put(frame.Header{Kind: frame.Expose, Context: 3, Tag: 4, Length: 5, Token: 6, Reply: 7})
				put(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: 8})
				put(frame.Header{Kind: frame.Withdrawn, Token: 9})
				put(frame.Header{Kind: frame.Heartbeat})
			}
		}
		readAll(t, b)
		if len(b.frames) != len(want) {
			t.Fatalf("data ring of %d: %d frames have arrived, want %d", data, len(b.frames), len(want))
		}
		for i := range want {
			if b.frames[i] != want[i] || !bytes.Equal(b.bodies[i], bodies[i]) {
				t.Fatalf("data ring of %d: frame %d is %+v (payload right: %v), want %+v", data, i, b.frames[i], bytes.Equal(b.bodies[i], bodies[i]), want[i])
			}
		}
	}
}

func TestFullRingTakesNoMoreUntilRead(t *testing.T) {
	a, b := pair(t, Config{Data: 4096})
	beat := frame.Header{Kind: frame.Heartbeat}
	for i := range cells {
		if n, err := a.Write(&beat, nil, 0); n != frame.HeaderSize || err != nil {
			t.Fatalf("cell %d: %d, %v", i, n, err)
		}
	}
	for range 2 {
		if n, err := a.Write(&beat, nil, 0); n != 0 || err != nil {
			t.Fatalf("a full ring takes %d bytes, %v", n, err)
		}
	}
	if a.bells != cells || b.bells != 0 {
		t.Errorf("the sender has rung %d times, want %d; the receiver %d times", a.bells, cells, b.bells)
	}
	readAll(t, b)
	if len(b.frames) != cells || b.bells == 0 {
		t.Errorf("%d frames read; the sender, who waits for room, was woken %d times", len(b.frames), b.bells)
	}
	// A payload that is longer than the data ring goes in part.
	body := pattern(3*4096, 1)
	h := frame.Header{Kind: frame.Eager, Length: uint64(len(body))}
	n, err := a.Write(&h, body, 0)
	if n != frame.HeaderSize+4096 || err != nil {
		t.Errorf("%d bytes written, %v; want what the data ring has room for", n, err)
	}
	if again, err := a.Write(&h, body, n); again != n || err != nil {
		t.Errorf("%d bytes written, %v; want no more than before", again, err)
	}
}

func TestGoodbyeArrivesThoughRingIsFull(t *testing.T) {
	for _, partial := range []bool{false, true} {
		a, b := pair(t, Config{Data: 4096})
		body := pattern(3*4096, 1)
		h, want := frame.Header{Kind: frame.Heartbeat}, cells
		if partial { // the rest never comes
			h, want = frame.Header{Kind: frame.Eager, Length: uint64(len(body))}, 0
			a.Write(&h, body, 0)
		} else {
			for range cells {
				a.Write(&h, nil, 0)
			}
		}
		bells := a.bells
		a.Finish(true)
		if a.bells == bells {
			t.Error("the peer is not woken for the goodbye")
		}
		for len(b.frames) <= want {
			if _, err := b.read(); err != nil {
				t.Fatal(err)
			}
			if len(b.frames) == 0 && b.looks > 10*leftEvery {
				t.Fatal("no goodbye")
			}
		}
		for i, f := range b.frames {
			if kind := f.Kind; (kind == frame.Goodbye) != (i == want) {
				t.Errorf("frame %d of %d is %v", i, len(b.frames), kind)
			}
		}
		if b.in.Left != 0 {
			t.Errorf("%d bytes of a frame are missing after the goodbye", b.in.Left)
		}
		for range 2 * leftEvery { // only once
			b.read()
		}
		b.Ended(nil)
		if _, err := b.read(); err != io.EOF || len(b.frames) != want+1 {
			t.Errorf("%d frames, then %v; want %d and io.EOF", len(b.frames), err, want+1)
		}
	}
}

func TestFinishWithoutGoodbyeSendsNothing(t *testing.T) {
	a, b := pair(t, Config{Data: 4096})
	a.Finish(false)
	for range 2 * leftEvery {
		b.read()
	}
	if len(b.frames) != 0 {
		t.Errorf("%v has arrived", b.frames)
	}
}

func TestFramesOfEndedPeerAreReadFirst(t *testing.T) {
	why := errors.New("because of the test")
	for _, c := range []struct{ give, want error }{{nil, io.EOF}, {why, why}} {
		a, b := pair(t, Config{Data: 4096})
		for range cells {
			a.Write(&frame.Header{Kind: frame.Heartbeat}, nil, 0)
		}
		a.Finish(true)
		b.Ended(c.give)
		b.Ended(errors.New("too late"))
		var err error
		for err == nil {
			_, err = b.read()
		}
		if err != c.want || len(b.frames) != cells+1 {
			t.Errorf("%v after %d frames, want %v after %d", err, len(b.frames), c.want, cells+1)
		}
	}
}

// TestInvalidCellIsErrFrame writes cells that no sender writes. That includes lengths that no address space
// holds: a program that probes such a message would allocate as much.
func TestInvalidCellIsErrFrame(t *testing.T) {
	size := func(kind frame.Kind, n uint64) uint64 { return uint64(kind)<<kindBits | n }
	for _, c := range []struct {
		name  string
		sizes []uint64 // of the cells; the last one is invalid
	}{
		{"no kind", []uint64{0}},
		{"unknown kind", []uint64{size(60, 0)}},
		{"piece of no frame", []uint64{kindMore<<kindBits | 8}},
		{"piece too short", []uint64{size(frame.Eager, 3000), kindMore<<kindBits | 8}},
		{"piece too long", []uint64{size(frame.Eager, 1030), kindMore<<kindBits | 1024}},
		{"frame inside a frame", []uint64{size(frame.Eager, 3000), size(frame.Heartbeat, 0)}},
		{"payload too long", []uint64{size(frame.Eager, frame.MaxPayload+1)}},
		{"message too long", []uint64{size(frame.ReadyToSend, lengthMax+1)}},
		{"exposed message too long", []uint64{size(frame.Expose, sizeMask)}},
		{"probe of another size", []uint64{kindProbe<<kindBits | 1}},
	} {
		a, b := pair(t, Config{Data: 4096})
		for _, s := range c.sizes {
			cell := a.out.cell()
			cell.size = s
			a.out.publish(cell)
		}
		_, err := b.read()
		if !errors.Is(err, frame.ErrFrame) || len(b.frames) != 0 || len(b.bodies) != len(c.sizes)-1 {
			t.Errorf("%s: %v, with %d frames; want ErrFrame", c.name, err, len(b.frames))
		}
	}
}
