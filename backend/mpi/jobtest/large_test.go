//go:build cgo && linux

package jobtest

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestCountsAboveInt32 transfers more than an int counts: more than 2^31 elements of one byte,
// displacements beyond that, and fewer but longer elements. By default it runs one transfer for
// each way of calling the library, with COHORT_SOAK all of them, which takes minutes.
func TestCountsAboveInt32(t *testing.T) {
	rank("large", large)
	if testing.Short() {
		t.Skip("left out with -short: transfers of several GiB; make test-all runs it")
	}
	inLibraries(t, func(t *testing.T, library string) {
		if free := available(t); free < largeMemory {
			t.Skipf("needs %d GiB of memory, there are %d", largeMemory>>30, free>>30)
		}
		for names := range slices.Chunk(largeNames(), largeJob) {
			e := start(t, library, 2, "large", largeVariable+"="+strings.Join(names, ","))
			ends, want := e.lines("ok"), 2*len(names)
			if e.status != 0 || len(ends) != want {
				t.Errorf("%d of %d transfers are right: status %d\n%s", len(ends), want, e.status, e.out)
			}
			t.Log(ends)
		}
	})
}

const (
	largeMemory   = 15 << 30 // for the ranks and the library's copies
	largeJob      = 5        // transfers in one job
	largeVariable = "MPITEST_LARGE"
)

// largeNames returns the transfers to run.
func largeNames() (names []string) {
	if os.Getenv("COHORT_SOAK") == "" {
		return []string{"Isend", "Allreduce", "Allgatherv", "Alltoallv"}
	}
	for _, c := range largeCases {
		names = append(names, c.name)
	}
	return names
}

// available returns the memory that is available.
func available(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &n); err == nil {
			return n << 10
		}
	}
	t.Fatal("there is no MemAvailable in /proc/meminfo")
	return 0
}

// Lengths: a little more than an int counts, and about half of that.
const (
	huge = 1<<31 + 5
	half = 1<<30 + 3
)

// slabs is one rank's memory: text to send in a, and received data in b.
type slabs struct {
	*cohort.Comm
	a, b []byte
	text []byte
	base int // where the text begins; it differs in each transfer
}

// largeCase is a transfer between two ranks. It returns an error if what arrived is wrong.
type largeCase struct {
	name string
	run  func(s *slabs) error
}

func large(w *cohort.Comm) error {
	// If memory runs out these processes end first.
	os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	s := &slabs{Comm: w, a: make([]byte, huge+1<<20), b: make([]byte, huge+1<<20), text: make([]byte, 1<<20-3)}
	for i := range s.text {
		s.text[i] = byte(i*i>>9 ^ i)
	}
	for _, name := range strings.Split(os.Getenv(largeVariable), ",") {
		i := slices.IndexFunc(largeCases, func(c largeCase) bool { return c.name == name })
		if i < 0 {
			return fmt.Errorf("there is no transfer %q", name)
		}
		c := largeCases[i]
		begun := time.Now()
		s.base += 4099
		if err := c.run(s); err != nil {
			err = fmt.Errorf("rank %d: %s: %w", w.Rank(), c.name, err)
			say("%v", err)
			return err
		}
		say("ok %s %v", c.name, time.Since(begun).Round(time.Millisecond))
		must.OK(w.Barrier())
	}
	return nil
}

// fill writes text into b. It differs at the start on each rank, and between any two positions
// 2^30, 2^31 or 2^32 bytes apart.
func (s *slabs) fill(b []byte, rank int) []byte {
	n := copy(b, s.text[s.base+1000*rank:])
	for n < len(b) {
		n += copy(b[n:], s.text)
	}
	return b
}

// is checks that b is a rank's text, starting at its byte from.
func (s *slabs) is(b []byte, rank, from int) error {
	for at := 0; at < len(b); {
		want := s.text[(s.base+1000*rank+from+at)%len(s.text):]
		want = want[:min(len(want), len(b)-at)]
		if got := b[at : at+len(want)]; !bytes.Equal(got, want) {
			return fmt.Errorf("of %d bytes number %d is wrong", len(b), at+firstDifference(got, want))
		}
		at += len(want)
	}
	return nil
}

// received checks a message that fills b.
func (s *slabs) received(st cohort.Status, err error, from int) error {
	if err == nil && st.Bytes() != huge {
		err = fmt.Errorf("the status has %d bytes", st.Bytes())
	}
	if err != nil {
		return err
	}
	return s.is(s.b[:huge], from, 0)
}

var largeCases = []largeCase{
	{"Send", func(s *slabs) error {
		if s.Rank() == 0 {
			return cohort.Send(s.Comm, s.fill(s.a[:huge], 0), 1, 1)
		}
		st, err := cohort.Recv(s.Comm, s.b, 0, 1)
		return s.received(st, err, 0)
	}},
	{"Isend", func(s *slabs) error {
		if s.Rank() == 1 {
			return waited(cohort.Isend(s.Comm, s.fill(s.a[:huge], 1), 0, 1))
		}
		q, err := cohort.Irecv(s.Comm, s.b[:huge], 1, 1)
		if err != nil {
			return err
		}
		st, err := q.Wait()
		return s.received(st, err, 1)
	}},
	{"Bcast", func(s *slabs) error {
		if s.Rank() == 1 {
			s.fill(s.b[:huge], 1)
		}
		if err := cohort.Bcast(s.Comm, s.b[:huge], 1); err != nil {
			return err
		}
		return s.is(s.b[:huge], 1, 0)
	}},
	{"BcastInit", func(s *slabs) error {
		p, err := cohort.BcastInit(s.Comm, s.b[:huge], 0)
		if err != nil {
			return err
		}
		for round := range 2 {
			s.base += 5
			if s.Rank() == 0 {
				s.fill(s.b[:huge], round)
			}
			if _, err := p.Run(); err != nil {
				return err
			}
			if err := s.is(s.b[:huge], round, 0); err != nil {
				return err
			}
		}
		return p.Close()
	}},
	{"Allreduce", func(s *slabs) error { // the higher half bits of one, the lower of the other
		s.fill(s.b[:huge], 0)
		mask := byte(0xf0 >> (4 * s.Rank()))
		for i := range s.b[:huge] {
			s.b[i] &= mask
		}
		if err := cohort.Allreduce(s.Comm, s.b[:huge], s.b[:huge], cohort.Bor); err != nil {
			return err
		}
		return s.is(s.b[:huge], 0, 0)
	}},
	{"AllreduceInit", func(s *slabs) error {
		p, err := cohort.AllreduceInit(s.Comm, s.b[:huge], s.b[:huge], cohort.Bor)
		if err != nil {
			return err
		}
		s.base += 5 // the text of one rank only; that of BcastInit is started twice
		if s.Rank() == 0 {
			s.fill(s.b[:huge], 0)
		} else {
			clear(s.b[:huge])
		}
		if _, err := p.Run(); err != nil {
			return err
		}
		if err := s.is(s.b[:huge], 0, 0); err != nil {
			return err
		}
		return p.Close()
	}},
	{"Allgatherv", func(s *slabs) error {
		counts, displs := []int{huge - 4, 1000}, []int{0, huge}
		send := s.fill(s.a[:counts[s.Rank()]], s.Rank())
		if err := cohort.Allgatherv(s.Comm, send, s.b, counts, displs); err != nil {
			return err
		}
		return s.parts(counts, displs)
	}},
	{"Gatherv", func(s *slabs) error {
		counts, displs := []int{1000, huge - 4}, []int{huge, 0}
		send := s.fill(s.a[:counts[s.Rank()]], s.Rank())
		if err := cohort.Gatherv(s.Comm, send, s.b, counts, displs, 0); err != nil || s.Rank() != 0 {
			return err
		}
		return s.parts(counts, displs)
	}},
	{"Scatterv", func(s *slabs) error {
		counts, displs := []int{huge - 4, 1000}, []int{0, huge}
		var send []byte
		if s.Rank() == 1 {
			send = s.fill(s.a, 1)
		}
		recv := s.b[:counts[s.Rank()]]
		if err := cohort.Scatterv(s.Comm, send, counts, displs, recv, 1); err != nil {
			return err
		}
		return s.is(recv, 1, displs[s.Rank()])
	}},
	{"Alltoallv", func(s *slabs) error { // all of it from rank 0 to rank 1
		counts := [2][]int{{10, huge - 4}, {1000, 20}}
		displs := []int{huge, 0}
		if s.Rank() == 1 {
			displs = []int{1 << 20, 0}
		}
		mine, theirs := counts[s.Rank()], []int{counts[0][s.Rank()], counts[1][s.Rank()]}
		from := []int{0, huge}
		s.fill(s.a, s.Rank())
		if err := cohort.Alltoallv(s.Comm, s.a, mine, displs, s.b, theirs, from); err != nil {
			return err
		}
		starts := []int{huge, 1 << 20} // of what goes to rank 0
		if s.Rank() == 1 {
			starts = []int{0, 0}
		}
		for r := range 2 {
			if err := s.is(s.b[from[r]:from[r]+theirs[r]], r, starts[r]); err != nil {
				return fmt.Errorf("from rank %d: %w", r, err)
			}
		}
		return nil
	}},
	{"Allgather", func(s *slabs) error {
		send := s.fill(s.a[:half], s.Rank())
		if err := cohort.Allgather(s.Comm, send, s.b[:2*half]); err != nil {
			return err
		}
		return s.parts([]int{half, half}, []int{0, half})
	}},
	{"Gather", func(s *slabs) error {
		send := s.fill(s.a[:half], s.Rank())
		if err := cohort.Gather(s.Comm, send, s.b[:2*half], 0); err != nil || s.Rank() != 0 {
			return err
		}
		return s.parts([]int{half, half}, []int{0, half})
	}},
	{"Scatter", func(s *slabs) error {
		var send []byte
		if s.Rank() == 0 {
			send = s.fill(s.a[:2*half], 0)
		}
		if err := cohort.Scatter(s.Comm, send, s.b[:half], 0); err != nil {
			return err
		}
		return s.is(s.b[:half], 0, s.Rank()*half)
	}},
	{"Alltoall", func(s *slabs) error {
		s.fill(s.a[:2*half], s.Rank())
		if err := cohort.Alltoall(s.Comm, s.a[:2*half], s.b[:2*half]); err != nil {
			return err
		}
		for r := range 2 {
			if err := s.is(s.b[r*half:(r+1)*half], r, s.Rank()*half); err != nil {
				return fmt.Errorf("from rank %d: %w", r, err)
			}
		}
		return nil
	}},
}

// parts checks that b holds each rank's part of the text.
func (s *slabs) parts(counts, displs []int) error {
	for r := range counts {
		if err := s.is(s.b[displs[r]:displs[r]+counts[r]], r, 0); err != nil {
			return fmt.Errorf("from rank %d: %w", r, err)
		}
	}
	return nil
}
