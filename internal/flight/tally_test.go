package flight

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

func newTally() *Ring {
	r := newRing()
	r.tally = &tally{tables: new([tables]table)}
	return r
}

// counts returns all that is counted.
func (r *Ring) counts() (rows []counted) {
	m := make(image, fileSize+tallySize)
	r.tally.copy(m.tally())
	return m.counts()
}

// A loop of up to eight operations has the time of each of them now and then.
func TestSparseRingTimesEveryOperationOfLoop(t *testing.T) {
	for n := 1; n <= 8; n++ {
		r := newRing()
		r.Sparse()
		timed := make([]int, n)
		for i := range 64 * n {
			k := r.Begin(What(Recv, 0, 0, 0), 0, 0, 0)
			if r.recs[k%Slots].begun != 0 {
				timed[i%n]++
			}
			r.End(k, nil)
		}
		for i, k := range timed {
			if k < 8 || k > 24 {
				t.Errorf("operation %d of a loop of %d has the time %d times of 64, want about 16", i, n, k)
			}
		}
	}
}

// The operations of many goroutines are all counted.
func TestTallyCountsOperationsOfManyGoroutines(t *testing.T) {
	r := newTally()
	const goroutines, each = 8, 2000
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range each {
				region := r.BeginRegion(What(Region, 0, 0, 2), 5)
				k := r.Begin(What(Send, 0, 0, uint32(g%2)), uint64(i%3), Pair(1, 2), 0)
				if i%10 == 0 {
					r.End(k, backend.ErrTimeout)
				} else {
					r.End(k, nil)
				}
				what := What(Recv, uint8(backend.Nonblocking), 0, 0)
				k = r.Begin(what, 8, 0, 0)
				r.Length(k, 0)
				r.Started(k)
				r.Waited(what, r.Wait(k))
				r.Received(what, 5)
				r.End(k, nil)
				r.EndRegion(region)
			}
		})
	}
	all.Wait()
	var sends, receives, regions, lost, sent, received uint64
	for _, c := range r.counts() {
		if c.op.Kind == 0 { // a goroutine stood still while the others began 1024 operations
			lost += c.calls
		} else if c.op.Kind == Region {
			regions += c.calls
		} else if c.op.Kind == Send {
			sends, sent = sends+c.calls, sent+c.bytes
		} else {
			receives, received = receives+c.calls, received+c.bytes
		}
		if c.ticks < c.waited || c.ticks < c.least {
			t.Errorf("%v: %d ticks, %d of them waiting, %d for the fastest", c.op.Kind, c.ticks, c.waited, c.least)
		}
	}
	const n = goroutines * each
	if all := sends + receives + lost; all < 2*n || all+regions > 3*n || regions < n/2 { // few regions are lost and not counted
		t.Errorf("%d sends, %d receives, %d others, %d regions; want %d with others, and %d regions or few less", sends, receives, lost, regions, 2*n, n)
	}
	if lost == 0 && (sends != n || sent != goroutines*1999 || received != 5*n) { // i%3 adds up to 1999
		t.Errorf("%d sends of %d bytes, %d received, want %d of %d, %d", sends, sent, received, n, goroutines*1999, 5*n)
	}
}

// A deferred End behind an early one is usual. The second may come when the record is another operation's.
func TestSecondEndOfRegionDoesNothing(t *testing.T) {
	for _, counts := range []bool{false, true} {
		r := newRing()
		if counts {
			r = newTally()
		}
		region := r.BeginRegion(What(Region, 0, 0, 2), 5)
		r.EndRegion(region)
		ended := r.recs[region%Slots].state
		for now()<<8 <= ended { // until the clock has gone on
		}
		r.EndRegion(region)
		if got := r.recs[region%Slots].state; got != ended {
			t.Errorf("counting %v: state %#x after the second End, want %#x", counts, got, ended)
		}
		for range Slots {
			r.End(r.Begin(What(Send, 0, 0, 2), 1, 0, 0), nil)
		}
		r.EndRegion(region)
		if !counts {
			continue
		}
		for _, c := range r.counts() {
			if c.op.Kind != Send && (c.op.Kind != Region || c.calls != 1) {
				t.Errorf("%d calls of kind %d, want 1 of %d", c.calls, c.op.Kind, Region)
			}
		}
	}
}

// An operation whose record has been overwritten does not change the length of another.
func TestLengthOfOverwrittenRecordIsDropped(t *testing.T) {
	r := newTally()
	old := r.Begin(What(Recv, 0, 0, 2), 1, 0, 0)
	r.End(old, nil)
	for range Slots - 1 {
		r.End(r.Begin(What(Recv, 0, 0, 2), 1, 0, 0), nil)
	}
	send := r.Begin(What(Send, 0, 0, 2), 3, 0, 0)
	if send%Slots != old%Slots {
		t.Fatalf("tickets %d and %d have different records", old, send)
	}
	r.Length(old, 1<<20)
	r.End(send, nil)
	for _, c := range r.counts() {
		if c.op.Kind == Send && c.bytes != 3 {
			t.Errorf("a Send of %d bytes, want 3", c.bytes)
		}
	}
}

// The race detector sees a dump beside operations.
func TestDumpBesideOperations(t *testing.T) {
	r := New("", Origin{Size: 1, Count: true})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 2000 {
				r.End(r.Begin(What(Send, 0, 0, 1), 8, 0, 0), nil)
			}
		})
	}
	for range 20 {
		if err := r.Write(io.Discard); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	var calls uint64
	for _, c := range r.counts() {
		calls += c.calls
	}
	if calls != 4000 {
		t.Errorf("%d calls, want 4000", calls)
	}
}

// A full table merges rows, and loses no call.
func TestFullTallyLosesNoCall(t *testing.T) {
	r := newTally()
	const comms, lengths = 300, 30
	var bytes uint64
	for c := range uint32(comms) {
		for n := range lengths {
			for _, k := range []Kind{Send, Recv, Kind(backend.Allreduce)} {
				r.End(r.Begin(What(k, 0, 0, c+1), 1<<n, 0, 0), nil)
				bytes += 1 << n
			}
			r.End(r.Begin(What(Region, 0, 0, c+1)|NamedByType, 0, Pair(uint32(c*lengths)+uint32(n)+1, 0), 0), nil)
		}
	}
	var calls, got uint64
	kinds := make(map[Kind]int)
	for _, c := range r.counts() {
		calls, got = calls+c.calls, got+c.bytes
		kinds[c.op.Kind]++
	}
	if calls != 4*comms*lengths || got != bytes {
		t.Errorf("%d calls with %d bytes are counted, want %d with %d", calls, got, 4*comms*lengths, bytes)
	}
	if kinds[Send] == 0 || kinds[0] != 1 {
		t.Errorf("rows of kinds %v, want some of Send, and one for the rest", kinds)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	r := newTally()
	if n := testing.AllocsPerRun(100, func() { r.End(r.Begin(What(Send, 0, 0, 1), 8, 0, 0), nil) }); n != 0 {
		t.Errorf("%v allocations an operation, want none", n)
	}
}

// rankFile has a rank with a clock of 1 GHz count calls for ten seconds.
func rankFile(t *testing.T, dir string, rank int, left bool, calls ...counted) {
	t.Helper()
	r := New("", Origin{Name: "job", Backend: "test", Rank: rank, Size: 4, Count: true})
	r.Comm(7, "world", 4, rank, 0)
	r.mem.setHertz(1e9)
	r.mem.setWord(atBegan, 1e9)
	if left {
		r.mem.setWord(atClosed, 11e9)
	} else {
		r.recs[1] = record{first: 1, what: What(Recv, 0, 0, 7), begun: 11e9, last: 1}
	}
	for _, c := range calls {
		x := r.tally.take()
		row := x.row(What(c.op.Kind, uint8(c.op.Form), 0, 7)|lengthClass(c.bytes)<<16, 0)
		row.calls, row.bytes, row.ticks, row.least, row.waited = c.calls, c.bytes, c.ticks, c.least, c.waited
		release(&x.busy, 0)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName(rank)), r.copy(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSummaryAddsUpRanks(t *testing.T) {
	dir := t.TempDir()
	allreduce, irecv := Operation{Kind: Kind(backend.Allreduce)}, Operation{Kind: Recv, Form: backend.Nonblocking}
	rankFile(t, dir, 0, true, counted{op: allreduce, tallyRow: tallyRow{calls: 2, bytes: 100, ticks: 4e9, least: 1e9}})
	rankFile(t, dir, 1, true, counted{op: allreduce, tallyRow: tallyRow{calls: 2, bytes: 100, ticks: 1e9, least: 5e8}},
		counted{op: irecv, tallyRow: tallyRow{calls: 3, bytes: 30, ticks: 3e9, waited: 2e9}})
	rankFile(t, dir, 3, false, counted{op: allreduce, tallyRow: tallyRow{calls: 1, bytes: 100, ticks: 1e9, least: 1e9}})
	dumps, _, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(dumps)
	if err != nil {
		t.Fatal(err)
	}
	// The fastest Allreduce took 0.5 s: the ranks waited 4-2*0.5, 0 and 0.5 s.
	want := []Sum{
		{Operation: "Allreduce", Comm: "world", Ranks: 3, Calls: 5, Bytes: 300, Min: 1, Mean: 2, Max: 4, Waiting: 3.5 / 3, Share: 6. / 30},
		{Operation: "Irecv", Comm: "world", Ranks: 1, Calls: 3, Bytes: 30, Min: 3, Mean: 3, Max: 3, Waiting: 2, Share: 3. / 30},
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	for i, w := range want {
		g := s.Operations[i]
		if g.Operation != w.Operation || g.Comm != w.Comm || g.Ranks != w.Ranks || g.Calls != w.Calls || g.Bytes != w.Bytes ||
			!near(g.Min, w.Min) || !near(g.Mean, w.Mean) || !near(g.Max, w.Max) || !near(g.Waiting, w.Waiting) || !near(g.Share, w.Share) {
			t.Errorf("got  %+v\nwant %+v", g, w)
		}
	}
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"4 ranks on test, 10.0 s each, 30.0% of it in operations", "rank 2 left no counts", "rank 3 did not close the world", "58%"} {
		if !strings.Contains(b.String(), text) {
			t.Errorf("the table lacks %q:\n%s", text, b.String())
		}
	}
}

func TestSummaryNeedsCounts(t *testing.T) {
	var b bytes.Buffer
	if err := New("", Origin{Size: 1}).Write(&b); err != nil {
		t.Fatal(err)
	}
	d, err := Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Summarize([]*Dump{d}); err == nil || !strings.Contains(err.Error(), EnvStats) {
		t.Errorf("error %v, want one that names %s", err, EnvStats)
	}
}

// The timeline of a rank that counts has the end of each operation.
func TestTimelineOfCountedOperationsHasDurations(t *testing.T) {
	r := New("", Origin{Size: 1, Count: true})
	for range 4 {
		r.End(r.Begin(What(Send, 0, 0, 0), 1, 0, 0), nil)
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	d, err := Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	a := newAnalysis([]*Dump{d})
	for _, e := range a.timeline(d, time.Time{}) {
		if e.Phase != "X" {
			t.Errorf("%s is a moment, want an interval", e.Name)
		}
	}
	if len(d.Ops) != 4 {
		t.Errorf("%d operations, want 4", len(d.Ops))
	}
}
