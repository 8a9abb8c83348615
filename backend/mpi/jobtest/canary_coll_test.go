//go:build cgo && linux

package jobtest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// TestMismatchedCollectivesStayInBuffers makes several collectives in a row that differ between
// ranks in length, root or form, without Config.Check. They may fail, be wrong or never end. But
// nothing is written outside the receive buffers, in Go's memory or the library's, and other
// communicators work.
func TestMismatchedCollectivesStayInBuffers(t *testing.T) {
	skipShort(t, "mismatched collectives write nothing past a buffer")
	program("mismatches", func() error { return mismatches("") })
	program("mismatched Allreduce", func() error { return mismatches("Allreduce") })
	for _, library := range inTurn(t) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", library, n), func(t *testing.T) {
				if n > 2 && testing.Short() {
					t.Skip("left out with -short: three ranks; make test-all runs it")
				}
				jobs := 8 / n
				if *canaries > 0 {
					jobs = max(*canaries/(n*sequences), 1)
				}
				calls, why := 0, ""
				for range jobs {
					made, fatal := mismatchJob(t, library, n, "mismatches")
					calls += made
					why = cmp.Or(why, fatal)
				}
				if calls == 0 && !t.Failed() {
					t.Skipf("%s has ended all jobs before a rank's report: %s", mpitest.Of(t, families[library]).Library, why)
				}
				t.Logf("%d calls of %d ranks", calls, n)
			})
		}
	}
	t.Run("openmpi/eager limit", func(t *testing.T) {
		for range 3 {
			mismatchJob(t, "openmpi", 2, "mismatches", "OMPI_MCA_btl_vader_eager_limit=600", "OMPI_MCA_btl_sm_eager_limit=600")
		}
	})
	t.Run("openmpi/ring", func(t *testing.T) {
		for range 6 {
			mismatchJob(t, "openmpi", 3, "mismatched Allreduce", "COHORT_MPI_TUNING=allreduce=ring")
		}
	})
}

// fatalError is how MPICH 4.2 ends a job on errors of collectives. A damaged heap ends it by a
// signal instead.
var fatalError = regexp.MustCompile(`Abort\(\d+\) on node .*: Fatal error in internal_\w+: .*`)

// mismatchJob runs one job. It returns the number of calls that a rank made, and the library's
// message if it ended the job before all ranks reported. The launcher's status does not count: the
// job may have to end without MPI_Finalize.
func mismatchJob(t *testing.T, library string, n int, name string, env ...string) (calls int, fatal string) {
	t.Helper()
	dir := t.TempDir()
	e := start(t, library, n, name, append(env, canaryCases(t, sequences), dirVariable+"="+dir,
		"LD_PRELOAD=libc_malloc_debug.so.0", "MALLOC_CHECK_=3")...) // the C library checks its heap
	for rank := range n {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(rank)))
		if err != nil && fatalError.MatchString(e.out) { // whatever the error handler
			fatal = fatalError.FindString(e.out)
			t.Logf("the library has ended the job, without a report of rank %d: %s", rank, fatal)
			continue
		}
		if err != nil {
			t.Fatalf("rank %d has not come to the end: status %d after %v\n%s", rank, e.status, e.took, e.out)
		}
		first, problems, _ := strings.Cut(string(b), "\n")
		if _, err := fmt.Sscanf(first, "%d calls", &calls); err != nil || calls == 0 || problems != "" {
			t.Errorf("rank %d: %s", rank, b)
		}
	}
	return calls, fatal
}

const (
	dirVariable = "MPITEST_DIR"
	sequences   = 10 // of calls in one job, each on a new communicator
	guardWord   = 0xa5a5a5a5
	words       = 24 << 20               // of the arena
	enough      = 100 * time.Millisecond // for the calls of one communicator
	otherLimit  = 2 * time.Minute        // for anything else
)

// form is one way to call a collective.
type form int

const (
	blocking form = iota
	nonblocking
	persistent
)

// step is one rank's call.
type step struct {
	coll string
	form form
	n    int // elements, of a block or all
	root int
	op   int // of ops
}

func (s step) String() string {
	return fmt.Sprintf("%s(count %d, root %d, op %d, form %d)", s.coll, s.n, s.root, s.op, s.form)
}

var (
	colls = []string{"Bcast", "Gather", "Gatherv", "Allgather", "Allgatherv", "Scatter", "Scatterv", "Alltoall", "Alltoallv",
		"Reduce", "Allreduce", "ReduceScatterBlock", "ReduceScatter", "Scan", "Exscan"}
	ops = []cohort.Op{cohort.Sum, cohort.Max, cohort.NewOp(true, func(in, inout []uint32) {
		for i, x := range in {
			inout[i] += x
		}
	})}
)

// reckless is one rank of the job.
type reckless struct {
	w        *cohort.Comm
	rng      *rand.Rand
	arena    []uint32 // guardWord everywhere outside receive buffers
	at       int
	slots    []slot
	calls    atomic.Int32
	hung     bool
	stuck    *time.Timer
	mu       sync.Mutex
	problems []string
}

// slot is the receive buffer of a call, in the arena.
type slot struct {
	s        step
	from, to int
}

// mismatches calls one collective, or for an empty name any.
func mismatches(only string) error {
	r, err := newReckless()
	if err != nil {
		return err
	}
	for range sequences {
		r.sequence(only)
	}
	return r.end()
}

func newReckless() (*reckless, error) {
	w, err := cohort.Init(background, nil)
	if err != nil {
		return nil, err
	}
	_, rng, err := readCases()
	r := &reckless{w: w, rng: rng, arena: slices.Repeat([]uint32{guardWord}, words)}
	// Once in hundreds of jobs, calls that never end keep a library from making others. Then the job
	// ends here.
	r.stuck = time.AfterFunc(otherLimit, func() {
		say("rank %d is stuck", w.Rank())
		r.report()
		os.Exit(0)
	})
	return r, err
}

// end leaves the job after a report.
func (r *reckless) end() error {
	if err := traffic(r.w, 3); err != nil {
		r.problem("the world no longer works: %v", err)
	}
	if err := r.report(); err != nil {
		return err
	}
	r.stuck.Stop()
	hung := uint32(0)
	if r.hung {
		hung = 1
	}
	if any, err := cohort.AllreduceOne(r.w, hung, cohort.Max); err != nil || any != 0 {
		return err // MPI cannot be finalized while a call hangs
	}
	return r.w.Close()
}

// report checks everything once more and writes the problems to a file.
func (r *reckless) report() error {
	r.look()
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf("%d calls\n%s", r.calls.Load(), strings.Join(r.problems[:min(len(r.problems), 5)], "\n"))
	return os.WriteFile(filepath.Join(os.Getenv(dirVariable), fmt.Sprint(r.w.Rank())), []byte(text), 0o600)
}

func (r *reckless) problem(format string, args ...any) {
	r.mu.Lock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
	r.mu.Unlock()
}

// sequence makes some calls in a row on a new communicator. Some of them differ between ranks.
func (r *reckless) sequence(only string) {
	c, err := r.w.Dup()
	if err != nil {
		r.problem("Dup: %v", err)
		return
	}
	var mine []planned
	equal, long := 0, 2+r.rng.IntN(5)
	if only == "" && r.rng.IntN(2) == 0 {
		only = colls[r.rng.IntN(len(colls))]
	}
	for i := range long {
		all := r.draw(only)
		most := 0
		for _, s := range all {
			most = max(most, s.n)
			if i == equal && s != all[0] {
				equal = -1 - i
			}
		}
		if equal == i {
			equal++
		}
		// The same room on all ranks, enough for anything that one of them sends.
		room := (most + 64) * 5 * r.w.Size()
		if r.at+room > len(r.arena) {
			break
		}
		mine = append(mine, r.plan(all[r.w.Rank()], r.at+64))
		r.at += room
	}
	if equal < 0 {
		equal = -1 - equal
	}
	r.run(c, mine, equal)
}

// run makes calls, of which the first equal ones are the same on all ranks. After a while it
// abandons them.
func (r *reckless) run(c *cohort.Comm, calls []planned, equal int) {
	r.stuck.Reset(otherLimit)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, p := range calls {
			r.calls.Add(1)
			err := p.call(c)
			// An error on another rank may end this one early.
			if err != nil && i < equal && !errors.Is(err, cohort.ErrBroken) && !errors.Is(err, cohort.ErrMismatch) {
				r.problem("%v, which all ranks call: %v", p.step, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(enough):
		r.hung = true // or slow, and continues during the next
	}
	r.look()
}

// draw returns each rank's call; mostly they are the same.
func (r *reckless) draw(only string) []step {
	g, n := r.rng, r.w.Size()
	s := step{coll: only, n: 1 + g.IntN([]int{16, 16, 400, 3000, 40000}[g.IntN(5)]), root: g.IntN(n), op: g.IntN(len(ops))}
	if only == "" {
		s.coll = colls[g.IntN(len(colls))]
	}
	if f := g.IntN(10); f < 3 {
		s.form = form(1 + f%2)
	}
	all := slices.Repeat([]step{s}, n)
	other := &all[g.IntN(n)]
	switch p := g.IntN(20); {
	case p < 9:
	case p < 11:
		other.n *= 2
	case p < 13:
		other.n *= 3
	case p < 14:
		other.n++
	case p < 15:
		for i := range all {
			all[i].n += g.IntN(s.n)
		}
	case p < 18:
		for i := range all {
			all[i].root = g.IntN(n)
		}
	case p < 19:
		other.form = form(g.IntN(3))
	default:
		other.coll = colls[g.IntN(len(colls))]
	}
	return all
}

// plan gives a call its buffers; the receive buffer is in the arena.
func (r *reckless) plan(s step, at int) planned {
	p, n := planned{step: s}, r.w.Size()
	sends, receives := s.n, s.n
	root := s.root == r.w.Rank()
	switch s.coll {
	case "Bcast":
		sends = 0
	case "Gather", "Gatherv":
		receives = s.n * n
		if !root {
			receives = 0
		}
	case "Allgather", "Allgatherv":
		receives = s.n * n
	case "Scatter", "Scatterv":
		sends = s.n * n
		if !root {
			sends = 0
		}
	case "ReduceScatterBlock", "ReduceScatter":
		sends = s.n * n
	case "Alltoall", "Alltoallv":
		sends, receives = s.n*n, s.n*n
	}
	p.send, p.recv = make([]uint32, sends), r.arena[at:at+receives]
	r.slots = append(r.slots, slot{s, at, at + receives})
	p.counts, p.displs = slices.Repeat([]int{s.n}, n), make([]int, n)
	for i := range n {
		p.displs[i] = i * s.n
	}
	return p
}

// look checks everything outside the receive buffers so far.
func (r *reckless) look() {
	at, before := 0, "the first"
	for _, s := range append(r.slots, slot{from: r.at, to: r.at}) {
		for i, x := range r.arena[at:s.from] {
			if x != guardWord {
				r.problem("written %d words behind the buffer of %s", i, before)
				break
			}
		}
		at, before = s.to, s.s.String()
	}
}
