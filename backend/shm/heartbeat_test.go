//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// stopSelf stops this process until another one lets it go on. The thread that
// takes the signal may be another one, and this one runs on until then.
func stopSelf() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGCONT)
	defer signal.Stop(again)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-again
}

// silent checks that an operation ended because a rank was silent.
func silent(err error, rank int) error {
	if lost(err, rank) != nil || !strings.Contains(err.Error(), "silent for 200ms") {
		return fmt.Errorf("got %v, want ErrPeerLost because rank %d was silent for 200ms", err, rank)
	}
	return nil
}

var computed uint64 // so that it is

func init() {
	// A rank is stopped. The others lose it and go on; when it moves again it finds
	// that out.
	programs["silent"] = func(c backend.Comm) error {
		const victim = 1
		e := c.(*comm).e
		if err := works(c); err != nil {
			return err
		}
		if c.Rank() == victim {
			stopSelf()
			for range 2 {
				_, err := c.Recv(nil, make([]byte, 8), 0, 1)
				if err := errors.Join(silent(err, victim), silent(sum(c, 1), victim)); err != nil {
					return err
				}
			}
			return nil
		}
		if err := silent(sum(c, 1), victim); err != nil {
			return err
		}
		d, err := shrink(c, 1, victim)
		if err != nil {
			return err
		}
		if err := works(d); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := syscall.Kill(e.pids[victim], syscall.SIGCONT); err != nil {
				return err
			}
			for e.area[victim].left.Load() == 0 { // until it has seen its loss
				shmem.Yield()
			}
		}
		return works(d)
	}

	// A sender is stopped after it has claimed a part of a receive's buffer and before
	// it has written it. The receive ends all the same, and nothing is written
	// afterwards: the process has to end for that.
	programs["claimed"] = func(c backend.Comm) error {
		const victim, size = 1, 1 << 20
		e := c.(*comm).e
		if !e.cma {
			return errors.New("this kernel forbids copies between processes")
		}
		if c.Rank() == victim {
			q := &backend.Request{}
			q.Begin()
			e.mu.Lock() // no other goroutine of this process helps
			o := e.getOp()
			o.comm, o.req = c.(*comm), q
			q.Impl = o
			e.send(o, make([]byte, size), 0, 1, backend.Standard)
			for o.desc.state.Load() != descState(o.gen, descTaken) {
				shmem.Yield()
			}
			if _, ok := claim(o.desc, o.gen, chunkCount(size)); !ok {
				return errors.New("the receiver has claimed all of it")
			}
			for {
				stopSelf()
			}
		}
		if c.Rank() == 0 {
			q := &backend.Request{}
			q.Begin()
			e.mu.Lock()
			o := e.getOp()
			o.comm, o.req = c.(*comm), q
			q.Impl = o
			e.recv(o, make([]byte, size), c.(*comm).pattern(victim, 1))
			for o.state != opTaking {
				e.drain(victim, false)
			}
			for uint32(o.desc.claim.Load()) < 2 { // one here, one by the victim
				shmem.Yield()
			}
			e.unlock()
			if err := errors.Join(c.Await(nil, q), silent(q.Err, victim)); err != nil {
				return err
			}
			if !e.dead[victim] {
				return errors.New("the buffer was given back while its sender could write to it")
			}
		} else if err := silent(sum(c, 1), victim); err != nil {
			return err
		}
		d, err := shrink(c, 1, victim)
		if err != nil {
			return err
		}
		return works(d)
	}

	// A sender withdraws a message that its receiver is just accepting. The receiver may still write to the
	// desc, which is not reused before that has ended.
	programs["held"] = func(c backend.Comm) error {
		e := c.(*comm).e
		d, err := c.Derive([]int{0, 1}, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if err := c.Send(nil, nil, 0, 3, backend.Standard); err != nil {
				return err
			}
			for !e.hasNews(0) {
				shmem.Yield()
			}
			e.mu.Lock()
			h, payload, _ := e.in[0].peek()
			idx, gen, _ := getRTS(payload)
			desc := e.peers[0][idx]
			ok := h.kind == kindRTS && desc.state.CompareAndSwap(descState(gen, descRTS), descState(gen, descAccepted))
			e.unlock()
			if !ok {
				return fmt.Errorf("no RTS: %+v", h)
			}
			if _, err := c.Recv(nil, nil, 0, 2); err != nil {
				return err
			}
			if !desc.state.CompareAndSwap(descState(gen, descRevoked), descState(gen, descFree)) {
				return fmt.Errorf("the message was not withdrawn: %#x", desc.state.Load())
			}
			if err := c.Send(nil, nil, 0, 2, backend.Standard); err != nil {
				return err
			}
			return pass(c, 100000)
		}
		q := &backend.Request{}
		q.Begin()
		if _, err := c.Recv(nil, nil, 1, 3); err != nil {
			return err
		}
		d.Isend(q, make([]byte, 100000), 1, 1, backend.Standard)
		o := q.Impl.(*op)
		for o.desc.state.Load() != descState(o.gen, descAccepted) {
			shmem.Yield()
		}
		d.Close()
		if !q.Ready() || !errors.Is(q.Err, backend.ErrClosed) {
			return fmt.Errorf("a message on a communicator that was closed: %v", q.Err)
		}
		if e.reclaim(); len(e.held) != 1 || len(e.freeDesc) != descs-1 {
			return fmt.Errorf("%d descs are held and %d free", len(e.held), len(e.freeDesc))
		}
		err = c.Send(nil, nil, 1, 2, backend.Standard)
		if _, e := c.Recv(nil, nil, 1, 2); err != nil || e != nil {
			return errors.Join(err, e)
		}
		if e.reclaim(); len(e.held) != 0 || len(e.freeDesc) != descs {
			return fmt.Errorf("at the end %d descs are held and %d free", len(e.held), len(e.freeDesc))
		}
		return pass(c, 100000)
	}

	// Ranks that compute and do not communicate are not silent, nor are those that wait.
	programs["busy"] = func(c backend.Comm) error {
		times, err := strconv.Atoi(os.Getenv("SHM_TEST_TIMES"))
		if err != nil {
			return err
		}
		e := c.(*comm).e
		x := uint64(1)
		for i := range times {
			for begin := e.self.beat.Load(); e.self.beat.Load()-begin < busyBeats; {
				for i := range uint64(1 << 16) {
					x = x*6364136223846793005 + i
				}
			}
			computed = x
			if lost := c.(backend.Survivor).Lost(); lost != nil {
				return fmt.Errorf("in round %d of %d lost are %v", i+1, times, lost)
			}
			if err := sum(c, 1); err != nil {
				return fmt.Errorf("round %d of %d: %w", i+1, times, err)
			}
		}
		return nil
	}
}

// busyBeats is for how many of its own heartbeats a rank computes: four times the limit.
const busyBeats = 40

func TestSilentRankIsLost(t *testing.T) {
	t.Setenv("SHM_TEST_HEARTBEAT", "200ms")
	launch(t, "silent", 3)
}

// TestBusy has more ranks compute than there are processors: none is lost. With COHORT_BUSY, a duration,
// there are four ranks for each processor, for that long, and the limit is the default.
func TestBusy(t *testing.T) {
	text := os.Getenv("COHORT_BUSY")
	if text == "" {
		if testing.Short() {
			t.Skip("left out with -short: ranks that compute for seconds are not lost; make test-all runs it")
		}
		t.Setenv("SHM_TEST_HEARTBEAT", "1s")
		t.Setenv("SHM_TEST_TIMES", "1")
		launch(t, "busy", 8)
		return
	}
	long, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("COHORT_BUSY: %v", err)
	}
	each := busyBeats * (&Config{}).beatEvery()
	n, times := 4*runtime.NumCPU(), max(1, int(long/each))
	t.Setenv("SHM_TEST_TIMES", strconv.Itoa(times))
	launch(t, "busy", n)
	t.Logf("%d ranks computed %d times for %v", n, times, each)
}

// What counts are the looks that find the counter where it was.
func TestPulseCountsLooks(t *testing.T) {
	for _, c := range []struct {
		name   string
		beats  []uint32 // the counter at each look
		silent int      // the first look that finds silence; -1: none
	}{
		{"beats at every look", []uint32{1, 2, 3, 4, 5, 6, 7, 8}, -1},
		{"beats at every other", []uint32{1, 1, 2, 2, 3, 3, 4, 4}, -1},
		{"stops", []uint32{5, 6, 7, 7, 7, 7, 7}, 5},
		{"never begins", []uint32{0, 0, 0, 0}, 2},
		{"this rank was stopped for long", []uint32{1, 2, 2, 900, 901, 901, 902}, -1},
		{"comes round", []uint32{1<<32 - 1, 0, 0, 1}, -1},
		{"comes back too late", []uint32{3, 3, 3, 3, 4}, 3},
	} {
		p, got := pulse{}, -1
		for i, counter := range c.beats {
			if p.silent(counter, 3) {
				got = i
				break
			}
		}
		if got != c.silent {
			t.Errorf("%s: silence found at look %d, want %d", c.name, got, c.silent)
		}
	}
}

func TestPatienceFollowsSlowerBeat(t *testing.T) {
	for _, c := range []struct {
		limit, mine, theirs time.Duration
		want                int
	}{
		{10 * time.Second, time.Second, time.Second, 10},
		{10 * time.Second, time.Second, 10 * time.Millisecond, 10},
		{time.Second, 100 * time.Millisecond, time.Second, 100}, // it goes by 10 s
		{250 * time.Millisecond, 25 * time.Millisecond, 25 * time.Millisecond, 10},
		{105 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, 11},
	} {
		if got := patience(c.limit, c.mine, c.theirs); got != c.want {
			t.Errorf("%v: %d looks, want %d", c, got, c.want)
		}
	}
	for _, c := range []struct {
		set, silence, every time.Duration
	}{
		{0, 10 * time.Second, time.Second},
		{-1, 0, 0},
		{time.Millisecond, 100 * time.Millisecond, 10 * time.Millisecond},
		{time.Minute, time.Minute, 6 * time.Second},
	} {
		cfg := Config{Heartbeat: c.set}
		if cfg.silence() != c.silence || cfg.beatEvery() != c.every {
			t.Errorf("Heartbeat %v: %v every %v, want %v every %v", c.set, cfg.silence(), cfg.beatEvery(), c.silence, c.every)
		}
	}
}

func TestStoppedWithClaimedChunkIsKilled(t *testing.T) {
	t.Setenv("SHM_TEST_HEARTBEAT", "200ms")
	survive(t, "claimed", 3, 1)
}

func TestHeldDescIsNotReused(t *testing.T) { launch(t, "held", 2) }
