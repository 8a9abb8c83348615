package flight

import (
	"bytes"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func newRing() *Ring { return &Ring{recs: new([Slots]record)} }

// records returns what a reader sees.
func (r *Ring) records() (all []record) {
	for i := range r.recs {
		if c, ok := r.recs[i].read(); ok {
			all = append(all, c)
		}
	}
	return all
}

func TestRingKeepsTheLastOperations(t *testing.T) {
	r := newRing()
	const n = 3 * Slots / 2
	for i := range uint64(n) {
		r.End(r.Begin(What(Send, 0, 0, 7), i, Pair(1, 2), Pair(3, 4)), nil)
	}
	seen := make(map[uint64]bool)
	for _, c := range r.records() {
		seen[c.count] = true
	}
	if len(seen) != Slots {
		t.Errorf("%d operations, want %d", len(seen), Slots)
	}
	for i := uint64(n - Slots); i < n; i++ {
		if !seen[i] {
			t.Errorf("the ring has no operation %d", i)
		}
	}
}

// Operations under way are not overwritten, unless nearly all of them are under way.
func TestRingKeepsOperationsUnderWay(t *testing.T) {
	r := newRing()
	stuck := r.Begin(What(Recv, 0, 0, 0), 99, 0, 0)
	for range 10 * Slots {
		r.End(r.Begin(What(Send, 0, 0, 0), 1, 0, 0), nil)
	}
	found := 0
	for _, c := range r.records() {
		if c.first == uint64(stuck) && c.count == 99 && State(c.state) == Open {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the operation under way is there %d times, want 1", found)
	}
	for range 10 * Slots { // nobody waits for these
		r.Begin(What(Send, 1, 0, 0), 1, 0, 0)
	}
	last := r.Begin(What(Recv, 0, 0, 0), 5, 0, 0)
	all := r.records()
	at := -1
	for i, c := range all {
		if c.first == uint64(last) {
			at = i
		}
	}
	if at < 0 {
		t.Error("the ring does not have the last of very many operations under way")
	}
	// The end of one that is gone changes nothing.
	r.End(stuck, backend.ErrTimeout)
	for i, c := range r.records() {
		if c != all[i] {
			t.Errorf("record %d was %v, is %v", i, all[i], c)
		}
	}
}

// Records that are read while others are written are whole.
func TestRingIsReadWholeWhileWritten(t *testing.T) {
	r := newRing()
	var writers, reader sync.WaitGroup
	stop := make(chan struct{})
	whole := func(c record) bool {
		return c.typed == ^c.count && c.place == 3*c.count && c.what == c.count<<32|uint64(Send)
	}
	reader.Go(func() {
		for {
			for _, c := range r.records() {
				if !whole(c) {
					t.Errorf("a torn record: %+v", c)
					return
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	const each = 20_000
	for w := range uint64(4) {
		writers.Go(func() {
			for i := range uint64(each) {
				n := w<<20 | i
				r.End(r.Begin(n<<32|uint64(Send), n, ^n, 3*n), nil)
			}
		})
	}
	writers.Wait()
	close(stop)
	reader.Wait()
	all := r.records()
	if len(all) != Slots {
		t.Errorf("%d records, want %d", len(all), Slots)
	}
	for _, c := range all {
		if !whole(c) || State(c.state) != Done {
			t.Errorf("a record that is not whole or not done: %+v", c)
		}
	}
}

// Of a sparse ring a fourth of the operations has the time, and those have it that somebody waits in.
func TestSparseRingTimesOperationsThatWait(t *testing.T) {
	r := newRing()
	r.Sparse()
	blocking, started := What(Recv, uint8(backend.Blocking), 0, 0), What(Recv, uint8(backend.Nonblocking), 0, 0)
	for range 4 * 4 {
		r.End(r.Begin(blocking, 0, 0, 0), nil)
	}
	timed := 0
	for _, c := range r.records() {
		if c.begun != 0 {
			timed++
		}
	}
	if timed != 4 {
		t.Errorf("%d of %d operations have the time, want 4", timed, 4*4)
	}
	untimed := func(begin func() Ticket) Ticket { // the next that has no time of its own
		for {
			if n := begin(); r.recs[n%Slots].begun == 0 {
				return n
			}
		}
	}
	ended := untimed(func() Ticket { return r.Begin(blocking, 0, 0, 0) })
	r.End(ended, nil)
	nonblocking := r.Begin(started, 0, 0, 0)
	open := untimed(func() Ticket { return r.Begin(blocking, 0, 0, 0) })
	atOnce := untimed(func() Ticket { return r.Begin(blocking, 0, 0, 0) })
	r.End(atOnce, backend.ErrTimeout)
	always := r.Begin(What(Probe, uint8(backend.Blocking), 0, 0), 0, 0, 0)
	for before := now(); now() == before; {
	}
	r.Stamp()
	begun := func(n Ticket) uint64 { return r.recs[n%Slots].begun }
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"ended before it waited: none", begun(ended) == 0},
		{"nonblocking: none", begun(nonblocking) == 0},
		{"waiting: since then", begun(open) > begun(atOnce)},
		{"failed at once: then", begun(atOnce) != 0 && begun(atOnce) <= r.recs[atOnce%Slots].state>>8},
		{"always timed", begun(always) != 0},
	} {
		if !c.is {
			t.Errorf("%s: begun is not so", c.name)
		}
	}
	since := begun(open)
	r.Stamp()
	if begun(open) != since {
		t.Error("an operation that waits again has another time")
	}
	// One that is far back is found by who looks at all.
	far := untimed(func() Ticket { return r.Begin(blocking, 0, 0, 0) })
	for range 2 * recent {
		r.End(r.Begin(blocking, 0, 0, 0), nil)
	}
	if r.Stamp(); begun(far) != 0 {
		t.Error("Stamp has looked further back than it says")
	}
	if r.StampAll(); begun(far) == 0 {
		t.Error("StampAll has not found an operation that is far back")
	}
}

// An operation whose time is not known is no older than the one before it whose time is.
func TestDecodeBoundsUnknownTimes(t *testing.T) {
	r := New("", Origin{Name: "job", Size: 1})
	started := What(Send, uint8(backend.Nonblocking), 0, 0)
	r.End(r.Begin(started, 1, 0, 0), nil)
	r.End(r.Begin(What(Recv, 0, 0, 0), 1, 0, 0), nil)
	r.End(r.Begin(started, 1, 0, 0), nil)
	r.Begin(What(Send, 0, 0, 0), 1, 0, 0)
	var w bytes.Buffer
	if err := r.Write(&w); err != nil {
		t.Fatal(err)
	}
	d, err := Decode(w.Bytes())
	if err != nil || len(d.Ops) != 4 {
		t.Fatalf("%d operations, %v", len(d.Ops), err)
	}
	known := d.Ops[1].Begun
	if o := d.Ops[0]; !o.After.IsZero() || known.IsZero() {
		t.Errorf("the first: after %v; the second: begun %v", o.After, known)
	}
	for _, o := range d.Ops[2:] {
		if !o.Begun.IsZero() || !o.After.Equal(known) {
			t.Errorf("begun %v, after %v, want after %v", o.Begun, o.After, known)
		}
	}
	if p := (&analysis{end: d.Dumped}).where(d); p.wait != d.Dumped.Sub(known) {
		t.Errorf("it waits for %v, want %v", p.wait, d.Dumped.Sub(known))
	}
	lines := Lines([]*Dump{d}, 4)
	if l := lines[3]; l.Begun != "" || l.Ago != 0 || l.AtMost != d.Dumped.Sub(known).Seconds() {
		t.Errorf("the line: %+v", l)
	}
	if l := lines[0]; l.Begun != "" || l.Ago != 0 || l.AtMost != 0 {
		t.Errorf("the first line: %+v", l)
	}
}

// The words of a record come out as what went in.
func TestDecodeReturnsRecordedOperation(t *testing.T) {
	r := New("", Origin{Name: "job", Backend: "local", Rank: 2, Size: 4})
	r.Comm(0, "world", 4, 2, 0)
	r.Comm(9, "world.split1", 2, 1, 0)
	r.Type(0xabcdef, "main.particle")
	why := backend.ErrPeerLost
	a := r.Begin(What(Kind(backend.Allreduce), uint8(backend.Blocking), uint8(backend.OpSum), 0), 1<<40, Pair(uint32(backend.Float64), 0), Pair(^uint32(0), 118))
	r.End(a, nil)
	b := r.Begin(What(Recv, uint8(backend.Blocking), 0, 9), 80, Pair(0xabcdef, ^uint32(0)), Pair(^uint32(0), 0))
	c := r.Begin(What(Recv, uint8(backend.Nonblocking), 0, 0), 80, Pair(1, 5), Pair(3, 0))
	r.Wait(c)
	d := r.Begin(What(Send, uint8(backend.Blocking), 0, 0), 8, Pair(1, 5), Pair(3, 0))
	r.End(d, why)
	var w bytes.Buffer
	if err := r.Write(&w); err != nil {
		t.Fatal(err)
	}
	dump, err := Decode(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if dump.Job != "job" || dump.Backend != "local" || dump.Rank != 2 || dump.Size != 4 || dump.Cause != Asked || dump.Dumped.IsZero() {
		t.Errorf("head: %+v", dump)
	}
	if len(dump.Comms) != 2 || dump.Comms[1] != (CommName{9, "world.split1", 2, 1, 0}) || dump.Types[0xabcdef] != "main.particle" {
		t.Errorf("names: %+v %+v", dump.Comms, dump.Types)
	}
	if len(dump.Ops) != 4 {
		t.Fatalf("%d operations, want 4", len(dump.Ops))
	}
	for i, o := range dump.Ops {
		timed, changed := !o.Begun.IsZero(), !o.Since.IsZero()
		if timed != (i < 2) || changed != (i > 1) {
			t.Errorf("operation %d: begun %v, since %v", i, o.Begun, o.Since)
		}
		if o.Begun.After(dump.Dumped) || o.Since.After(dump.Dumped) {
			t.Errorf("operation %d is later than the dump at %v: begun %v, since %v", i, dump.Dumped, o.Begun, o.Since)
		}
		o.Begun, o.After, o.Since = dump.Left, dump.Left, dump.Left
		want := []Operation{
			{Ticket: uint64(a), Kind: Kind(backend.Allreduce), Op: backend.OpSum, Type: uint32(backend.Float64), Count: 1 << 40, Peer: -1, Seq: 118, State: Done},
			{Ticket: uint64(b), Kind: Recv, Comm: 9, Type: 0xabcdef, Count: 80, Peer: -1, Tag: -1},
			{Ticket: uint64(c &^ later), Kind: Recv, Form: backend.Nonblocking, Type: 1, Count: 80, Peer: 3, Tag: 5, State: Waiting},
			{Ticket: uint64(d), Kind: Send, Type: 1, Count: 8, Peer: 3, Tag: 5, State: Failed, Code: backend.Code(why)},
		}[i]
		if o != want {
			t.Errorf("operation %d:\n got %+v\nwant %+v", i, o, want)
		}
	}
}

// Counting reads the clock at the beginning and at the end of a call. The difference of "read twice" and "late" is what
// that takes alone, and the difference of "counted" and "late" what --stats takes.
func BenchmarkRing(b *testing.B) {
	r, s, c := newRing(), newRing(), newRing()
	s.Sparse()
	c.tally = &tally{tables: new([tables]table)}
	send, recv, isend, typed, place := What(Send, 0, 0, 1), What(Recv, 0, 0, 1), What(Send, uint8(backend.Nonblocking), 0, 1), Pair(1, 2), Pair(3, 4)
	took := uint64(0)
	for _, c := range []struct {
		name string
		op   func()
	}{
		{"timed", func() { r.End(r.Begin(recv, 8, typed, place), nil) }},
		{"sparse", func() { s.End(s.Begin(recv, 8, typed, place), nil) }},
		{"untimed", func() { r.End(r.Begin(isend, 8, typed, place), nil) }},
		{"late", func() { s.End(s.Begin(send, 8, typed, place), nil) }},
		{"read twice", func() {
			begun := now()
			s.End(s.Begin(send, 8, typed, place), nil)
			took += now() - begun
		}},
		{"counted", func() { c.End(c.Begin(send, 8, typed, place), nil) }},
		{"counted start", func() {
			c.Completed(c.Begin(isend, 8, typed, place), 0)
		}},
		{"clock", func() { now() }},
		{"nothing", func() {}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.op()
			}
		})
	}
}
