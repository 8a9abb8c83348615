//go:build linux

package engine

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	icomm "github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// The rings of two ranks are made with their first message.

// A rank that has no memory for rings gets the notices of another one, and is not lost.
func TestNoticesNeedNoMemory(t *testing.T) {
	c, o := withOther(t, os.Getpid(), time.Hour)
	o.full = &backend.Fault{Sentinel: backend.ErrAlloc}
	for id := range 100 {
		d, err := c.Derive(nil, []int{0, 1}, uint32(1+id))
		if err != nil {
			t.Fatal(err)
		}
		d.Break(&backend.Fault{Sentinel: backend.ErrCanceled, Text: "because of the test"})
		d.Close()
		c.Poll()
		o.read(t)
	}
	o.full = nil
	if err := c.Send(patient, make([]byte, 8), 1, 1, backend.Standard); err != nil {
		t.Errorf("a message, when there is memory: %v", err)
	}
	if o.read(t); len(o.kinds) != 301 || o.kinds[0] != frame.Broken || o.kinds[299] != frame.Closed { // Close repeats the break
		t.Errorf("%v have arrived", o.kinds)
	}
}

// Notices find no room in the mailbox, and the rank that would read them has left. This rank leaves without waiting
// for room.
func TestNoticesForRankThatHasLeftDelayNoLeaving(t *testing.T) {
	c, o := withOther(t, os.Getpid(), time.Hour)
	for id := range 100 {
		d, err := c.Derive(nil, []int{0, 1}, uint32(1+id))
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
	e := c.(*comm).e
	e.mu.Lock()
	waits := e.peers[1].waits()
	e.mu.Unlock()
	o.Finish(true)
	if l := e.newLeaving(leaveFlush, leaveFlush, leaveMost); !waits || !l.look() {
		t.Errorf("notices wait for room: %v; the leaving waits for them", waits)
	}
}

// A message for which there is no memory fails, and a later one does not.
func TestFirstMessageWithoutMemoryIsErrAlloc(t *testing.T) {
	c, o := withOther(t, os.Getpid(), time.Hour)
	for _, n := range []int{8, ringData} {
		o.full = &backend.Fault{Sentinel: backend.ErrAlloc}
		if err := c.Send(patient, make([]byte, n), 1, 1, backend.Standard); !errors.Is(err, backend.ErrAlloc) {
			t.Errorf("a message of %d bytes: %v, want ErrAlloc", n, err)
		}
	}
	o.full = nil
	if err := c.Send(patient, make([]byte, 8), 1, 1, backend.Standard); err != nil {
		t.Error(err)
	}
	if o.read(t); len(o.kinds) != 1 {
		t.Errorf("%v have arrived, want one message", o.kinds)
	}
}

// A call of all ranks ends on each with an error that names the lack of memory, also if only one rank lacks it: the
// others wait for its message.
func TestCallsWithoutMemoryEndOnAllRanks(t *testing.T) {
	calls := map[string]func(backend.Comm) error{
		"collective": func(c backend.Comm) error {
			w := icomm.NewWorld(context.Background(), c, icomm.Options{Timeout: time.Minute})
			_, err := w.Split(icomm.DupCall, "dup", 0, 0, 0, nil)
			return err
		},
		"agreement": func(c backend.Comm) error {
			_, err := c.(backend.Recovery).Agree(patient, 6)
			return err
		},
	}
	for name, call := range calls {
		for lacks, full := range map[string][2]bool{"both": {true, true}, "one": {true, false}} {
			t.Run(name+"/"+lacks, func(t *testing.T) {
				errs := make(chan error, 2)
				for r, c := range ringless(t, full) {
					go func() {
						if r == 1 {
							time.Sleep(20 * time.Millisecond) // on purpose: this rank comes late
						}
						errs <- call(c)
					}()
				}
				for range 2 {
					if err := <-errs; !errors.Is(err, backend.ErrAlloc) {
						t.Errorf("%v, want ErrAlloc", err)
					}
				}
			})
		}
	}
}

// ringless returns the worlds of two ranks in this process. Those that are full have no memory for rings.
func ringless(t *testing.T, full [2]bool) (worlds [2]backend.Comm) {
	size := memlink.Size(ringData)
	seg, err := shmem.Create("engine-test", 2*size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	var mailboxes [2]memlink.Mailbox
	for r := range worlds {
		e := New(Config{Rank: r, Peers: make([]Peer, 2), Heartbeat: time.Hour, Sleeper: make(bell, 1), Yield: runtime.Gosched})
		e.Connect(1-r, memlink.New(memlink.Config{Segment: seg, Out: r * size, In: (1 - r) * size, Data: ringData,
			Says: &mailboxes[r], Hears: &mailboxes[1-r], Peer: processOf(os.Getpid()), Make: func() error {
				if full[r] {
					return backend.Faultf(backend.ErrAlloc, "no memory for rings")
				}
				return nil
			}}))
		if worlds[r], err = e.Start(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for _, c := range worlds {
			closing.Go(func() { c.Close() })
		}
		closing.Wait()
	})
	return worlds
}
