//go:build linux

package engine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wait"
)

// bell is a Sleeper for links through memory.
type bell chan struct{}

func (b bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

func (b bell) Sleep(timeout time.Duration) {
	if timeout <= 0 {
		timeout = time.Hour
	}
	select {
	case <-b:
	case <-time.After(timeout):
	}
}

func (b bell) Begin()                         {}
func (b bell) Add(Link, bool) bool            { return false }
func (b bell) End()                           {}
func (b bell) Poll([]Link, []bool, func(int)) {}
func (b bell) Close()                         {}

// lateBell calls news when a sleep begins, and forgets the rings of the time before. It counts the sleeps after
// that.
type lateBell struct {
	bell
	news   func()
	sleeps int
}

func (b *lateBell) Begin() {
	if b.news == nil {
		return
	}
	b.news()
	b.news = nil
	select {
	case <-b.bell:
	default:
	}
}

func (b *lateBell) Sleep(timeout time.Duration) {
	b.sleeps++
	b.bell.Sleep(time.Millisecond)
}

// other is rank 1 of a job in which rank 0 has an engine: the test does what it does.
type other struct {
	*memlink.Link
	seg   *shmem.Segment
	in    frame.Arrival
	kinds []frame.Kind // that have arrived
	last  frame.Header // of them
	kill  func()       // when rank 0 ends its process
	full  error        // why there is no memory for rings
}

func (o *other) Begin(*frame.Arrival) error { return nil }
func (o *other) End(a *frame.Arrival) error {
	if a.Head.Kind != frame.Heartbeat {
		o.kinds, o.last = append(o.kinds, a.Head.Kind), a.Head
	}
	return nil
}

const ringData = 64 << 10

// withOther returns rank 0's communicator of a job of two ranks. pid is that of rank 1's process.
func withOther(t *testing.T, pid int, heartbeat time.Duration) (backend.Comm, *other) {
	t.Helper()
	rings := make(bell, 1)
	return withSleeper(t, pid, heartbeat, rings, rings)
}

// processOf returns a process with a number, of which this one has the proof.
func processOf(pid int) *shmem.Process {
	p := shmem.Self().Process()
	p.PID = pid
	return p
}

func withSleeper(t *testing.T, pid int, heartbeat time.Duration, rings bell, sleeper Sleeper) (backend.Comm, *other) {
	t.Helper()
	size := memlink.Size(ringData)
	seg, err := shmem.Create("engine-test", 2*size)
	if err != nil {
		t.Fatal(err)
	}
	o := &other{seg: seg}
	o.in.Receiver = o
	cfg := memlink.Config{Segment: seg, Out: 0, In: size, Data: ringData, Make: func() error { return o.full },
		Says: new(memlink.Mailbox), Hears: new(memlink.Mailbox), Peer: processOf(pid), Copies: true, Kill: func() { o.kill() }}
	mine := memlink.New(cfg)
	o.kill = func() { t.Error("the process is killed") }
	var asleep wait.Bell // it always is
	asleep.Arm()
	cfg.Says, cfg.Hears = cfg.Hears, cfg.Says
	cfg.Out, cfg.In, cfg.Peer, cfg.Asleep, cfg.Bell = size, 0, processOf(os.Getpid()), &asleep, rings.Ring
	o.Link = memlink.New(cfg)
	e := New(Config{Peers: make([]Peer, 2), Heartbeat: heartbeat, Sleeper: sleeper, Yield: runtime.Gosched})
	e.Connect(1, mine)
	world, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		world.Close()
		if len(e.slots) != len(e.spares) || e.posted.Len() != 0 || mine.Receiving() {
			t.Errorf("at the end %d of %d tokens are free, %d receives are posted, copies go on: %v", len(e.spares), len(e.slots), e.posted.Len(), mine.Receiving())
		}
		seg.Close()
	})
	return world, o
}

func (o *other) write(t *testing.T, h frame.Header, body string) {
	t.Helper()
	h.Length += uint64(len(body))
	if err := o.Make(); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Write(&h, []byte(body), 0); n != frame.HeaderSize+len(body) || err != nil {
		t.Fatalf("%v: %d bytes written, %v", h.Kind, n, err)
	}
}

// read reads all that has arrived.
func (o *other) read(t *testing.T) {
	t.Helper()
	for moved := true; moved; {
		var err error
		if moved, err = o.Read(&o.in); err != nil {
			t.Fatal(err)
		}
	}
}

// expose announces a message. With stop rank 1 has claimed the first part of it, and does not copy it.
func (o *other) expose(t *testing.T, context uint32, msg []byte, stop bool) *memlink.Transfer {
	t.Helper()
	var all []*memlink.Transfer
	for { // the descs lie before the data ring
		x := &memlink.Transfer{}
		if _, ok := o.Announce(x, msg); !ok {
			break
		}
		all = append(all, x)
	}
	for _, x := range all[1:] {
		o.Revoke(x)
	}
	if stop {
		off := 2*memlink.Size(ringData) - ringData - 64*len(all) + 64*int(all[0].Token()&0xff)
		shmem.At[atomic.Uint64](o.seg, off+8).Add(1)
	}
	o.write(t, frame.Header{Kind: frame.Expose, Context: context, Tag: 1, Length: uint64(len(msg)), Token: all[0].Token(), Reply: shmem.Addr(msg)}, "")
	return all[0]
}

// receive starts to receive a message that has been announced.
func receive(t *testing.T, c backend.Comm, n int) *backend.Request {
	t.Helper()
	if _, _, err := c.Probe(nil, 1, 1, true); err != nil {
		t.Fatal(err)
	}
	r := &backend.Request{}
	r.Begin()
	c.Irecv(r, make([]byte, n), 1, 1)
	if r.Ready() {
		t.Fatalf("received at once: %v", r.Err)
	}
	return r
}

func isLostRank(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), "rank 1") || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want ErrPeerLost that names rank 1, with %q", what, err, text)
	}
}

// TestInvalidFrameInMemoryLosesPeer has rank 1 write frames that no rank writes.
func TestInvalidFrameInMemoryLosesPeer(t *testing.T) {
	for _, c := range []struct {
		name string
		h    frame.Header
	}{
		{"unknown kind", frame.Header{Kind: 99}},
		{"kind of the start of a job", frame.Header{Kind: frame.Join}},
		{"exposed without a desc", frame.Header{Kind: frame.Expose, Tag: 1, Length: 8, Token: 0xff, Reply: 4096}},
		{"exposed beyond the addresses", frame.Header{Kind: frame.Expose, Tag: 1, Length: 8, Token: 0x100, Reply: 1<<64 - 4}},
		{"rank that does not exist", frame.Header{Kind: frame.Lost, Tag: 2}},
	} {
		world, o := withOther(t, os.Getpid(), 0)
		o.write(t, c.h, "")
		_, _, err := world.Probe(nil, 1, backend.AnyTag, true)
		isLostRank(t, c.name, err, "invalid frame")
	}
}

func TestBreakWithoutCodeIsErrInternal(t *testing.T) {
	world, o := withOther(t, os.Getpid(), 0)
	d, err := world.Derive(nil, []int{0, 1}, 9)
	if err != nil {
		t.Fatal(err)
	}
	o.write(t, frame.Header{Kind: frame.Broken, Context: 9}, "\x00")
	if _, err = d.Recv(nil, nil, 1, 1); !errors.Is(err, backend.ErrBroken) || !errors.Is(err, backend.ErrInternal) {
		t.Errorf("broken without a code: %v", err)
	}
}

// TestBreakAfterCloseIsNotSent: the other rank may have forgotten the communicator.
func TestBreakAfterCloseIsNotSent(t *testing.T) {
	world, o := withOther(t, os.Getpid(), 0)
	d, err := world.Derive(nil, []int{0, 1}, 9)
	if err != nil {
		t.Fatal(err)
	}
	o.write(t, frame.Header{Kind: frame.Closed, Context: 9}, "")
	d.Close()
	d.Break(errors.New("too late"))
	if o.read(t); len(o.kinds) != 1 || o.kinds[0] != frame.Closed {
		t.Errorf("%v have arrived, want only the closing", o.kinds)
	}
}

// TestStoppedCopierIsKilled has rank 1 stop after it has claimed a part of a receive's buffer, and before it
// has written it. The receive ends when its process has ended.
func TestStoppedCopierIsKilled(t *testing.T) {
	world, o := withOther(t, os.Getpid(), backend.HeartbeatMin)
	o.expose(t, 0, make([]byte, 1<<20), true)
	r := receive(t, world, 1<<20)
	e := world.(*comm).e
	link := e.peers[1].mem
	kills := 0
	o.kill = func() {
		if kills++; r.Ready() {
			t.Error("the buffer was given back while its sender could write to it")
		}
		go func() { // as the backend does
			link.Ended(nil)
			e.Poke()
		}()
	}
	if err := world.Await(nil, r); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if isLostRank(t, "the receive", r.Err, "silent for 100ms"); kills != 1 {
		t.Errorf("the process was killed %d times", kills)
	}
}

// begun returns a receive of a message of 1 MiB that cannot end: a part is missing. withdraw lets rank 1 give
// the message up.
func begun(t *testing.T, c backend.Comm, o *other, context uint32, copies bool) (r *backend.Request, withdraw func()) {
	t.Helper()
	const size = 1 << 20
	if copies {
		x := o.expose(t, context, make([]byte, size), true)
		r = receive(t, c, size)
		return r, func() {
			if !o.Withdraw(x) {
				t.Error("the message has been received")
			}
		}
	}
	o.write(t, frame.Header{Kind: frame.ReadyToSend, Context: context, Tag: 1, Length: size, Token: 5}, "")
	r = receive(t, c, size)
	o.read(t)
	o.write(t, frame.Header{Kind: frame.Data, Token: o.last.Reply}, strings.Repeat("x", 4096))
	return r, func() {}
}

func TestReceiveOfWithdrawnMessageEndsWithBreak(t *testing.T) {
	for _, copies := range []bool{true, false} {
		world, o := withOther(t, os.Getpid(), 0)
		d, err := world.Derive(nil, []int{0, 1}, 9)
		if err != nil {
			t.Fatal(err)
		}
		r, withdraw := begun(t, d, o, 9, copies)
		withdraw()
		for range 3 {
			if world.Poll(); r.Ready() {
				t.Fatalf("the receive ends with %v before the reason is known", r.Err)
			}
		}
		o.write(t, frame.Header{Kind: frame.Broken, Context: 9}, string(backend.Faultf(backend.ErrCanceled, "because of the test").Encode(noticeMax)))
		if err := d.Await(nil, r); err != nil || !errors.Is(r.Err, backend.ErrBroken) || !errors.Is(r.Err, backend.ErrCanceled) {
			t.Errorf("copies: %v: %v; the receive ends with %v", copies, err, r.Err)
		}
	}
}

// Sent, Received and Withdrawn implement memlink.Completer.
func (o *other) Sent(*memlink.Transfer) {}
func (o *other) Received(_ *memlink.Transfer, err error) {
	if err != nil {
		o.kinds = append(o.kinds, 0)
	}
}
func (o *other) Withdrawn(*memlink.Transfer) error { return errors.New("withdrawn") }

// TestCanceledSendInProgressBreaksCommunicator cancels a send whose receiver has accepted the message, and
// does not end.
func TestCanceledSendInProgressBreaksCommunicator(t *testing.T) {
	world, o := withOther(t, os.Getpid(), 0)
	d, err := world.Derive(nil, []int{0, 1}, 9)
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	ctx, cancel := context.WithCancel(t.Context())
	x, accepted := &memlink.Transfer{}, make(chan bool, 1)
	go func() {
		for len(o.kinds) == 0 {
			o.Read(&o.in)
			runtime.Gosched()
		}
		accepted <- o.Accept(x, o.last.Token, o.last.Reply, make([]byte, size))
		cancel()
		world.Wake()
	}()
	err = d.Send(&backend.Bound{Ctx: ctx}, make([]byte, size), 1, 1, backend.Standard)
	if !errors.Is(err, backend.ErrCanceled) || !<-accepted || !errors.Is(d.Broken(), backend.ErrCanceled) {
		t.Errorf("%v; broken: %v", err, d.Broken())
	}
	o.read(t)
	o.Step(o)
	if !slices.Equal(o.kinds, []frame.Kind{frame.Expose, frame.Broken, 0}) || x.Active() {
		t.Errorf("%v have arrived, and the receive is active: %v", o.kinds, x.Active())
	}
}

// TestReceiveOfRevokedMessageEndsAfterMprobe has rank 1 cancel a message that rank 0 has taken with Mprobe.
func TestReceiveOfRevokedMessageEndsAfterMprobe(t *testing.T) {
	world, o := withOther(t, os.Getpid(), 0)
	x := o.expose(t, 0, make([]byte, 1<<20), false)
	canceledAfterMprobe(t, world, 1, func() {
		if !o.Revoke(x) {
			t.Error("a message that is not received cannot be revoked")
		}
	})
}

func TestLeavingEndsReceiveInProgress(t *testing.T) {
	for _, copies := range []bool{true, false} {
		world, o := withOther(t, os.Getpid(), 0)
		r, _ := begun(t, world, o, 0, copies)
		world.Close()
		if !r.Ready() || !errors.Is(r.Err, backend.ErrClosed) {
			t.Errorf("copies: %v: after Close: %v %v", copies, r.Ready(), r.Err)
		}
	}
}

// TestMessageOfDeadSenderIsErrPeerLost: the sender ends before its message is read. The receive fails instead
// of returning zeros.
func TestMessageOfDeadSenderIsErrPeerLost(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() // so that no other process has its number
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4000, 1 << 20} {
		world, o := withOther(t, cmd.Process.Pid, 0)
		o.expose(t, 0, make([]byte, n), false)
		_, err := world.Recv(nil, make([]byte, n), 1, 1)
		isLostRank(t, "the receive", err, "ended without closing")
	}
}

// A peer that writes after this rank's last look, and before it announces its sleep, does not wake it. So the
// waiter reads all links once more instead of sleeping.
func TestWaiterFindsNewsFromBeforeItsSleep(t *testing.T) {
	const long = 1 << 20
	for _, c := range []struct {
		what  string
		start func(world backend.Comm, r *backend.Request)
		news  func(t *testing.T, o *other)
	}{
		{"a message", func(world backend.Comm, r *backend.Request) { world.Irecv(r, make([]byte, 8), 1, 1) },
			func(t *testing.T, o *other) { o.write(t, frame.Header{Kind: frame.Eager, Tag: 1}, "12345678") }},
		{"a copy", func(world backend.Comm, r *backend.Request) {
			world.Isend(r, make([]byte, long), 1, 1, backend.Standard)
		}, func(t *testing.T, o *other) {
			o.read(t)
			if !o.Accept(&memlink.Transfer{}, o.last.Token, o.last.Reply, make([]byte, long)) {
				t.Error("the message was not accepted")
			}
			for o.Receiving() {
				if _, err := o.Step(o); err != nil {
					t.Skipf("the kernel lets this process not copy its own memory: %v", err)
				}
			}
		}},
		{"room", func(world backend.Comm, r *backend.Request) {
			for last := r; last.Ready() || last == r; {
				last = &backend.Request{}
				last.Begin()
				world.Isend(last, make([]byte, 4000), 1, 1, backend.Standard)
			}
			world.Isend(r, nil, 1, 1, backend.Standard)
		}, func(t *testing.T, o *other) { o.read(t) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			rings := make(bell, 1)
			sleeper := &lateBell{bell: rings}
			world, o := withSleeper(t, os.Getpid(), -1, rings, sleeper)
			r := &backend.Request{}
			r.Begin()
			c.start(world, r)
			if r.Ready() {
				t.Fatalf("it has ended before the news: %v", r.Err)
			}
			sleeper.news = func() { c.news(t, o) }
			if err := world.Await(patient, r); err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
			if sleeper.news != nil || sleeper.sleeps > 0 {
				t.Errorf("news: %v; the waiter has slept %d times after the news", sleeper.news != nil, sleeper.sleeps)
			}
		})
	}
}
