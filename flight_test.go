package cohort

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// dumped returns what the flight recorder has of a rank.
func dumped(w *Comm) (*flight.Dump, error) {
	var b bytes.Buffer
	if err := w.DumpFlight(&b); err != nil {
		return nil, err
	}
	return flight.Decode(b.Bytes())
}

// Every operation that can wait is recorded, in each form, and its record ends when it returns.
func TestFlightRecordsEveryOperation(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		me, other := w.Rank(), 1-w.Rank()
		x, y := make([]int32, 3), make([]int32, 3)
		wait := func(q *Request, err error) error {
			if err != nil {
				return err
			}
			return second(q.Wait())
		}
		start := func(p *Persistent, err error) error {
			if err == nil {
				err = p.Start()
			}
			if err != nil {
				return err
			}
			_, err = p.Wait()
			return errors.Join(err, p.Close())
		}
		from := func(q *Request, err error) error { // by waiting for any
			if err != nil {
				return err
			}
			_, _, err = WaitAny(q)
			return err
		}
		var steps []error
		do := func(err error) { steps = append(steps, err) }
		get := func(_ Status, err error) { do(err) }
		do(Send(w, x, other, 1))
		get(Recv(w, y, other, 1))
		do(wait(Isend(w, x, other, 2)))
		do(from(Irecv(w, y, other, 2)))
		get(Sendrecv(w, x, other, 3, y, other, 3))
		do(Send(w, x, other, 4))
		_, _, err := RecvAppend[int32](w, nil, other, 4)
		do(err)
		do(Send(w, x, other, 5))
		get(w.Probe(other, 5))
		m, _, err := w.Mprobe(other, 5)
		do(err)
		get(MessageRecv(m, y))
		do(start(SendInit(w, x, other, 6)))
		do(start(RecvInit(w, y, other, 6)))
		do(Allreduce(w, x, y, Sum))
		do(wait(Ibcast(w, x, 0)))
		do(start(w.BarrierInit()))
		sub, err := w.Split(0, me)
		do(err)
		win, err := AllocateShared[int32](w, 4)
		do(err)
		do(win.Fence())
		g, err := win.Lock(LockShared, other)
		do(err)
		do(g.Unlock())
		do(win.Close())
		do(sub.Barrier())
		ring, err := w.CartCreate([]int{2}, []bool{true}, false)
		do(err)
		do(NeighborAllgather(ring, x, make([]int32, 6)))
		do(wait(IneighborAllgatherv(ring, x, make([]int32, 6), []int{3, 3}, []int{0, 3})))
		do(start(NeighborAlltoallInit(ring, make([]int32, 4), make([]int32, 4))))
		do(NeighborAlltoallv(ring, x, []int{1, 1}, []int{0, 1}, y, []int{1, 1}, []int{0, 1}))
		must.OK(errors.Join(steps...))
		d := must.Get(dumped(w))
		var got []string
		last := uint64(0)
		for _, o := range d.Ops {
			if o.State != flight.Done || o.Ticket <= last {
				return fmt.Errorf("%v: state %d, ticket %d after %d", o.Kind, o.State, o.Ticket, last)
			}
			last = o.Ticket
			got = append(got, fmt.Sprintf("%v/%d", o.Kind, o.Form))
		}
		text := strings.Join(got, " ") + " "
		want := "Send/0 Recv/0 Send/1 Recv/1 Sendrecv/0 Send/0 RecvAppend/0 Send/0 Probe/0 Mprobe/0 MessageRecv/0 Send/2 Recv/2 Allreduce/0 Bcast/1 Barrier/2 Barrier/2 Allgather/0 "
		if seen := strings.ReplaceAll(text, "WaitAny/0 ", ""); !strings.HasPrefix(seen, want) {
			return fmt.Errorf("recorded:\n %s\nwant %s…", seen, want)
		}
		for _, k := range []string{"Barrier/0", "Lock/0", "NeighborAllgather/0 NeighborAllgatherv/1 NeighborAlltoall/2 NeighborAlltoall/2 NeighborAlltoallv/0"} {
			if !strings.Contains(text, k+" ") {
				return fmt.Errorf("no %s in %s", k, text)
			}
		}
		if o := d.Ops[1]; o.Peer != other || o.Tag != 1 || o.Count != 12 {
			return fmt.Errorf("the first receive: %+v", o)
		}
		if len(d.Comms) != 3 || d.Comms[1].Name != "world.split1" || d.Comms[1].ID != 1 {
			return fmt.Errorf("communicators: %+v", d.Comms)
		}
		return nil
	})
}

// Agree and Shrink are recorded with their number.
func TestFlightRecordsAgreements(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		must.Get(w.Agree(1))
		sub, err := w.Shrink()
		if err != nil {
			return err
		}
		defer sub.Close()
		if w.Rank() == 0 {
			_, err = w.Agree(1)
		} else {
			_, err = w.Shrink()
		}
		must.OK(wantErr("agree and shrink at once", err, ErrMismatch))
		d := must.Get(dumped(w))
		last := []flight.Kind{flight.Agree, flight.Shrink}[w.Rank()]
		want := []flight.Operation{{Kind: flight.Agree, Seq: 1, State: flight.Done}, {Kind: flight.Shrink, Seq: 2, State: flight.Done},
			{Kind: last, Seq: 3, State: flight.Failed, Code: backend.Code(ErrMismatch)}}
		if len(d.Ops) != len(want) {
			return fmt.Errorf("recorded: %+v", d.Ops)
		}
		for i, o := range d.Ops {
			if got := (flight.Operation{Kind: o.Kind, Seq: o.Seq, State: o.State, Code: o.Code}); got != want[i] || o.Peer != -1 || o.Begun.IsZero() {
				return fmt.Errorf("operation %d: %+v, want %+v", i, o, want[i])
			}
		}
		return nil
	})
}

// An error that is due to other ranks writes a file and names it.
func TestFlightWritesFileAfterFailure(t *testing.T) {
	dir := t.TempDir()
	old := osEnv
	osEnv = envOf("COHORT_FLIGHT_DIR="+dir, "COHORT_TIMEOUT=50ms")
	defer func() { osEnv = old }()
	var both sync.WaitGroup
	both.Add(2)
	err := Run(t.Context(), 2, func(w *Comm) error {
		x := make([]float64, 1)
		_, err := Recv(w, x, 1-w.Rank(), 7+w.Rank())
		both.Done()
		both.Wait() // else the one that is first leaves the other alone
		if err := wantErr("recv", err, ErrTimeout); err != nil {
			return err
		}
		if err := isOp(err, "recv"); err != nil {
			return err
		}
		if !strings.HasSuffix(err.Error(), "; flight recorder: "+dir) {
			return fmt.Errorf("the error does not name the folder: %v", err)
		}
		if _, err := Recv(w, x, 5, 0); strings.Contains(err.Error(), "flight") {
			return fmt.Errorf("an argument error: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	dumps, _, err := flight.Read(dir)
	if err != nil || len(dumps) != 2 {
		t.Fatalf("%d dumps, %v", len(dumps), err)
	}
	for _, d := range dumps {
		o := d.Ops[0]
		if d.Cause != flight.Timeout || o.Kind != flight.Recv || o.State != flight.Failed || o.Since.Sub(o.Begun) < 40*time.Millisecond {
			t.Errorf("rank %d: %v, %+v", d.Rank, d.Cause, o)
		}
	}
	if f := flight.Analyze(dumps); !strings.Contains(f.Line, "rank 0 was in Recv from 1, tag 7, rank 1 was in Recv from 0, tag 8: each waits for the next") {
		t.Errorf("the line: %s", f.Line)
	}
}

// A folder that cannot be created, or written to by the rank's user, costs the files only.
func TestJobRunsWithoutFlightFolder(t *testing.T) {
	old := osEnv
	osEnv = envOf("COHORT_FLIGHT_DIR=/dev/null/x")
	defer func() { osEnv = old }()
	err := Run(t.Context(), 2, func(c *Comm) error {
		if notes := c.Diagnostics(); len(notes) != 1 || !strings.Contains(notes[0], "COHORT_FLIGHT_DIR") || !strings.Contains(notes[0], "/dev/null") {
			t.Errorf("Diagnostics returns %q", notes)
		}
		return c.Barrier()
	})
	if err != nil {
		t.Error(err)
	}
}

// The record of a collective ends when the function of its operation ends the goroutine.
func TestFlightRecordsGoexitInCollective(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		quits := NewOp(true, func(_, _ []int32) { runtime.Goexit() })
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = Allreduce(w, make([]int32, 1), make([]int32, 1), quits)
		}()
		<-ended
		d := must.Get(dumped(w))
		if o := d.Ops[len(d.Ops)-1]; o.Kind != flight.Kind(backend.Allreduce) || o.State < flight.Failed {
			return fmt.Errorf("the last record is of %v, state %d; want a failure of Allreduce", o.Kind, o.State)
		}
		return nil
	})
}
