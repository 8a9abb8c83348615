package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// testLink is one end of a link between two engines of this process, or between an engine and a test that
// writes frames itself. Bytes travel through slices. Each end holds a limited number that are not read.
type testLink struct {
	limit  time.Duration
	fails  error // of a write
	unsent int
	other  *testLink
	bell   *testSleeper // of this end's engine
	bite   int          // bytes that one Read takes
	holds  bool         // Write takes all, and holds what the other end has no room for
	enc    frame.Encoder
	dec    frame.Decoder
	head   [frame.HeaderSize]byte
	kept   []byte // corked
	got    []byte // read and not parsed
	used   atomic.Bool

	mu          *sync.Mutex // of both ends; guards the rest
	in          []byte      // what the other end has written
	ended       error       // why nothing more comes
	closed      bool
	news, space bool // armed
}

const (
	testRoom = 256 << 10
	testCork = 1 << 10
)

var errCut = errors.New("the other end is closed")

// testPair returns the two ends of a link.
func testPair(a, b *testSleeper) (*testLink, *testLink) {
	mu := new(sync.Mutex)
	end := func(s *testSleeper) *testLink {
		return &testLink{bell: s, bite: 64 << 10, mu: mu, dec: frame.Decoder{Limit: frame.MaxPayload}}
	}
	l, m := end(a), end(b)
	l.other, m.other = m, l
	return l, m
}

func (l *testLink) Write(h *frame.Header, body []byte, off int) (int, error) {
	l.used.Store(true)
	if off == 0 {
		l.enc.Encode(&l.head, h)
	}
	rest := append(append([]byte(nil), l.head[:]...), body...)[off:]
	if l.holds {
		l.kept = append(l.kept, rest...)
		_, err := l.Flush()
		return off + len(rest), err
	}
	n, err := l.put(append(l.kept, rest...))
	k := min(n, len(l.kept))
	l.kept = append([]byte(nil), l.kept[k:]...)
	if off += n - k; off == 0 {
		l.enc.Undo()
	}
	return off, err
}

// put gives the other end as many bytes as it has room for. A test may put bytes that are no frames.
func (l *testLink) put(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	if o := l.other; l.fails != nil || o.closed {
		return 0, cmp.Or(l.fails, errCut)
	} else {
		n := min(len(b), testRoom-len(o.in))
		o.in = append(o.in, b[:n]...)
		o.ring(o.news && n > 0)
		return n, nil
	}
}

// ring wakes the engine of an end. The lock of the link is held.
func (l *testLink) ring(armed bool) {
	if armed {
		l.bell.Ring()
	}
}

// check panics if a link is used after its end.
func (l *testLink) check() {
	if l.closed {
		panic("a link is used after Close")
	}
}

func (l *testLink) Cork(h *frame.Header, body []byte) bool {
	if len(l.kept)+frame.HeaderSize+len(body) > testCork {
		return false
	}
	l.enc.Encode(&l.head, h)
	l.kept = append(append(l.kept, l.head[:]...), body...)
	return true
}

func (l *testLink) Holds() bool { return len(l.kept) > 0 }

func (l *testLink) Flush() (bool, error) {
	n, err := l.put(l.kept)
	l.kept = l.kept[n:]
	return n > 0, err
}

func (l *testLink) Read(a *frame.Arrival) (bool, error) {
	if n, err := l.take(); n == 0 {
		return false, err
	}
	for {
		if a.Head.Kind == 0 {
			if len(l.got) < frame.HeaderSize {
				return true, nil
			}
			if err := l.dec.Decode(&a.Head, (*[frame.HeaderSize]byte)(l.got)); err != nil {
				a.Head.Kind = 0
				return true, err
			}
			l.got, a.Left = l.got[frame.HeaderSize:], int(a.Head.Payload())
			if err := a.Begin(); err != nil {
				return true, err
			}
		}
		n := min(a.Left, len(l.got))
		a.Take(l.got[:n])
		if l.got = l.got[n:]; a.Left > 0 {
			return true, nil
		}
		if err := a.End(); err != nil {
			return true, err
		}
	}
}

// take moves what has arrived to got.
func (l *testLink) take() (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	if n = min(len(l.in), l.bite); n == 0 {
		return 0, l.ended
	}
	l.got = append(l.got, l.in[:n]...)
	l.in = l.in[:copy(l.in, l.in[n:])]
	l.other.ring(l.other.space)
	return n, nil
}

// discard drops what has arrived.
func (l *testLink) discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	l.in = l.in[:0]
	l.other.ring(l.other.space)
}

// arm makes news, and with room also new room to write, end the sleep of this end's engine, until disarm.
func (l *testLink) arm(room bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	l.news, l.space = true, room
	return l.ready(room)
}

func (l *testLink) ready(room bool) bool {
	return len(l.in) > 0 || l.ended != nil || room && (len(l.other.in) < testRoom || l.other.closed)
}

func (l *testLink) disarm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news, l.space = false, false
}

// cut ends the link at the other end, with an error or io.EOF, once that has read all.
func (l *testLink) cut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.other; o.ended == nil {
		o.ended = err
		o.ring(o.news)
	}
}

func (l *testLink) Finish(bool) { l.cut(io.EOF) }

func (l *testLink) Close() {
	l.cut(io.EOF)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	l.closed, l.in = true, nil
	l.other.ring(l.other.space)
}

func (l *testLink) EagerMax() int { return EagerMax }
func (l *testLink) Hidden() bool  { return false }

func (l *testLink) Limit(d time.Duration) { l.limit = d }

func (l *testLink) Unsent() int { return l.unsent }

// header returns the header of the next frame that the engine at the other end has written, without a
// payload. It is for tests that have this end.
func (l *testLink) header() (h frame.Header, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.in) < frame.HeaderSize {
		return h, false
	}
	if err := l.dec.Decode(&h, (*[frame.HeaderSize]byte)(l.in)); err != nil {
		panic(err)
	}
	l.in = l.in[frame.HeaderSize:]
	return h, true
}

// testSleeper sleeps on a channel.
type testSleeper struct {
	rung  chan struct{}
	armed []*testLink
}

func newTestSleeper() *testSleeper { return &testSleeper{rung: make(chan struct{}, 1)} }

func (s *testSleeper) Begin() {
	select {
	case <-s.rung:
	default:
	}
}

func (s *testSleeper) Add(l Link, room bool) bool {
	s.armed = append(s.armed, l.(*testLink))
	return l.(*testLink).arm(room)
}

func (s *testSleeper) Sleep(timeout time.Duration) {
	var end <-chan time.Time
	if timeout > 0 {
		end = time.After(timeout)
	}
	select {
	case <-s.rung:
	case <-end:
	}
}

func (s *testSleeper) Ring() {
	select {
	case s.rung <- struct{}{}:
	default:
	}
}

func (s *testSleeper) Poll(links []Link, room []bool, ready func(int)) {
	for i, l := range links {
		l := l.(*testLink)
		l.mu.Lock()
		is := !l.closed && l.ready(room[i])
		l.mu.Unlock()
		if is {
			ready(i)
		}
	}
}

func (s *testSleeper) End() {
	for _, l := range s.armed {
		l.disarm()
	}
	s.armed = s.armed[:0]
}

func (s *testSleeper) Close() {}

// testDialer makes links between the ranks of one process. A goroutine of the other rank carries out
// what a call does there, because that rank may be stopped.
type testDialer struct {
	rank int
	all  []*testDialer // by rank
	bell *testSleeper

	mute, refuses atomic.Bool // does not answer, or refuses all links

	mu     sync.Mutex
	e      *Engine     // nil: not served yet, or closed
	made   []*testLink // with this rank
	served sync.WaitGroup
}

var (
	errNotListening = errors.New("connection refused")
	errRefused      = errors.New("the rank is not one of the job")
)

// reach lets another rank do something for this one.
func (d *testDialer) reach(ctx context.Context, rank int, do func(e *Engine)) error {
	to := d.all[rank]
	if to.mute.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if to.refuses.Load() {
		return errRefused
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	e := to.e
	if e == nil {
		return errNotListening
	}
	to.served.Go(func() { do(e) })
	return nil
}

func (d *testDialer) Dial(ctx context.Context, rank int) (Link, error) {
	here, there := testPair(d.bell, d.all[rank].bell)
	d.add(here)
	d.all[rank].add(there)
	if err := d.reach(ctx, rank, func(e *Engine) { e.Came(d.rank, there) }); err != nil {
		return nil, err
	}
	return here, nil
}

func (d *testDialer) add(l *testLink) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made = append(d.made, l)
}

// used returns how many links this rank has confirmed.
func (d *testDialer) used() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.made {
		if l.used.Load() {
			n++
		}
	}
	return n
}

func (d *testDialer) Request(ctx context.Context, rank int) (*backend.Fault, error) {
	type answer struct {
		lost  *backend.Fault
		given bool
	}
	answers := make(chan answer, 1)
	err := d.reach(ctx, rank, func(e *Engine) {
		lost, given := e.Requested(d.rank)
		answers <- answer{lost, given}
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answers:
		if !a.given {
			return nil, io.ErrUnexpectedEOF
		}
		return a.lost, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *testDialer) NotListening(err error) bool { return errors.Is(err, errNotListening) }
func (d *testDialer) Refused(err error) bool      { return errors.Is(err, errRefused) }

func (d *testDialer) Serve(_ context.Context, e *Engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.e = e
}

func (d *testDialer) Close() {
	d.mu.Lock()
	d.e = nil
	d.mu.Unlock()
	d.served.Wait()
}
