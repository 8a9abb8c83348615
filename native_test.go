package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// worlds runs body as n ranks of a local job whose backend wrap changes, and
// returns their errors.
func worlds(n int, s settings, wrap func(backend.Comm) backend.Comm, body func(w *Comm) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, bc := range local.New(n) {
		wg.Go(func() {
			w := newWorld(context.Background(), wrap(bc), s)
			errs[rank] = errors.Join(must.Return(body)(w), w.Close())
		})
	}
	wg.Wait()
	return errs
}

// onWorlds is worlds, and fails the test with the errors.
func onWorlds(t *testing.T, n int, s settings, wrap func(backend.Comm) backend.Comm, body func(w *Comm) error) {
	t.Helper()
	for rank, err := range worlds(n, s, wrap, body) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// scheduling is a local backend that leaves all collectives to schedules.
type scheduling struct{ backend.Comm }

func (scheduling) Collective(*backend.Bound, *backend.Call) (backend.Plan, error) {
	return backend.PlanChecked, nil
}
func (scheduling) StartCollective(*backend.Call) (backend.Operation, error) { return nil, nil }
func (s scheduling) Exchange(recv, send *backend.Request, in, out []byte, source, dest, tag int) {
	s.Comm.(backend.Collectives).Exchange(recv, send, in, out, source, dest, tag)
}
func (scheduling) Flush() {}

// planning is a local backend that completes no call at once. It agrees on calls, and then carries them out as
// the local backend does.
type planning struct {
	scheduling
	plan   backend.Plan
	agreed int
}

func (p *planning) Collective(b *backend.Bound, c *backend.Call) (backend.Plan, error) {
	if !c.Agreed {
		return p.plan, nil
	}
	p.agreed++
	call := *c
	call.Seq += 1 << 16 // the messages of the agreement have c.Seq: one that is just being sent would be taken for another call
	return p.Comm.(backend.Collectives).Collective(b, &call)
}

// reduceAll makes a few collectives and looks at what comes of them.
func reduceAll(w *Comm, times int) error {
	n, me := w.Size(), w.Rank()
	for i := range times {
		x, y := []int64{int64(me), int64(i)}, make([]int64, 2)
		if err := Allreduce(w, x, y, Sum); err != nil {
			return err
		}
		if y[0] != int64(n*(n-1)/2) || y[1] != int64(n*i) {
			return fmt.Errorf("allreduce %d: got %v", i, y)
		}
		if err := w.Barrier(); err != nil {
			return err
		}
	}
	return nil
}

// Each plan gives the right results. It reaches the backend only if all ranks agreed and none can
// end the call early.
func TestPlansReachTheBackend(t *testing.T) {
	const times = 5
	for _, plan := range []backend.Plan{backend.PlanSchedule, backend.PlanChecked, backend.PlanAgree} {
		for _, bounded := range []bool{false, true} { // on one rank
			wrap := func(bc backend.Comm) backend.Comm {
				return &planning{scheduling: scheduling{bc}, plan: plan}
			}
			errs := worlds(3, settings{}, wrap, func(w *Comm) error {
				p, h := w.base().Backend().(*planning), w
				if bounded && w.Rank() == 1 {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					h = w.WithContext(ctx)
				}
				must.OK(reduceAll(h, times))
				want := 0
				if plan == backend.PlanAgree && !bounded {
					want = 2 * times
				}
				if p.agreed != want {
					return fmt.Errorf("%d calls reached Agreed, want %d", p.agreed, want)
				}
				return nil
			})
			for rank, err := range errs {
				if err != nil {
					t.Errorf("plan %d, bounded %v: rank %d: %v", plan, bounded, rank, err)
				}
			}
		}
	}
}

// With CollectivesSchedule the backend carries out no collective.
func TestSchedulesBypassTheBackend(t *testing.T) {
	wrap := func(bc backend.Comm) backend.Comm {
		return &planning{scheduling: scheduling{bc}, plan: backend.PlanAgree}
	}
	onWorlds(t, 2, settings{Config: Config{Collectives: "schedule"}}, wrap, func(w *Comm) error {
		must.OK(reduceAll(w, 1))
		if n := w.base().Backend().(*planning).agreed; n != 0 {
			return fmt.Errorf("%d calls reached the backend", n)
		}
		return nil
	})
}

// If ranks make different calls, they get the error before the backend is called.
func TestMismatchIsFoundBeforeTheBackend(t *testing.T) {
	for _, plan := range []backend.Plan{backend.PlanChecked, backend.PlanAgree} {
		wrap := func(bc backend.Comm) backend.Comm { return &planning{scheduling: scheduling{bc}, plan: plan} }
		for rank, err := range worlds(3, settings{}, wrap, func(w *Comm) error {
			op := Sum
			if w.Rank() == 2 {
				op = Max
			}
			err := Allreduce(w, []int64{1}, make([]int64, 1), op)
			if n := w.base().Backend().(*planning).agreed; n != 0 {
				return fmt.Errorf("%d calls reached Agreed, after %w", n, err)
			}
			return err
		}) {
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "rank 2 called Allreduce(type int64, count 1, op max)") {
				t.Errorf("plan %d: rank %d: %v", plan, rank, err)
			}
		}
	}
}

// A panic of a user operation in a call that was agreed on becomes an error.
func TestPanicInAgreedCallIsError(t *testing.T) {
	op := NewOp(true, func(_, _ []int64) { panic("out of order") })
	wrap := func(bc backend.Comm) backend.Comm {
		return &planning{scheduling: scheduling{bc}, plan: backend.PlanAgree}
	}
	for rank, err := range worlds(2, settings{}, wrap, func(w *Comm) error {
		return Allreduce(w, []int64{1}, make([]int64, 1), op)
	}) {
		if !errors.Is(err, ErrOp) || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// starting is a local backend that runs nonblocking and persistent collectives
// itself, on a communicator of its own.
type starting struct {
	scheduling
	own                         *sched.Runner
	decline                     bool
	started, prepared, released int
}

func newStarting(bc backend.Comm, decline bool) *starting {
	all := make([]int, bc.Size())
	for r := range all {
		all[r] = r
	}
	own, err := bc.Derive(nil, all, 1<<20)
	if err != nil {
		panic(err)
	}
	return &starting{scheduling: scheduling{bc}, own: sched.New(own), decline: decline}
}

// counted counts how often it is released.
type counted struct {
	backend.Operation
	s *starting
}

func (c counted) Release() {
	c.s.released++
	c.Operation.Release()
}

func (s *starting) StartCollective(c *backend.Call) (backend.Operation, error) {
	if c.Err != nil || s.decline {
		return nil, c.Err
	}
	var op backend.Operation
	var err error
	if c.Form == backend.Persistent {
		s.prepared++
		op, err = s.own.Prepare(c)
	} else {
		s.started++
		op, err = s.own.Start(c)
	}
	return counted{op, s}, err
}

// The backend carries out the nonblocking and persistent collectives that it accepts. The others
// are schedules.
func TestStarterRunsNonblockingCollectives(t *testing.T) {
	for _, c := range []struct {
		name    string
		decline bool
		s       settings
		want    [3]int // started, prepared, released
	}{
		{"taken", false, settings{}, [3]int{1, 1, 2}},
		{"declined", true, settings{}, [3]int{}},
		{"schedule", false, settings{Config: Config{Collectives: "schedule"}}, [3]int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrap := func(bc backend.Comm) backend.Comm { return newStarting(bc, c.decline) }
			onWorlds(t, 3, c.s, wrap, func(w *Comm) error {
				x, y := []int64{int64(w.Rank())}, make([]int64, 1)
				q := must.Get(Iallreduce(w, x, y, Sum))
				if _, err := q.Wait(); err != nil || y[0] != 3 {
					return fmt.Errorf("nonblocking: %v, got %v", err, y)
				}
				p := must.Get(AllreduceInit(w, x, y, Max))
				for round := range int64(4) {
					x[0] = round * int64(w.Rank())
					must.OK(p.Start())
					if _, err := p.Wait(); err != nil || y[0] != round*2 {
						return fmt.Errorf("persistent, round %d: %v, got %v", round, err, y)
					}
				}
				must.OK(errors.Join(p.Close(), p.Close()))
				s := w.base().Backend().(*starting)
				if got := [3]int{s.started, s.prepared, s.released}; got != c.want {
					return fmt.Errorf("started, prepared and released: %v, want %v", got, c.want)
				}
				return nil
			})
		})
	}
}

// The caller gets the errors that a backend returns for a wrong call at once, and for an operation
// that timed out.
func TestStarterErrorsReachTheCaller(t *testing.T) {
	wrap := func(bc backend.Comm) backend.Comm { return newStarting(bc, false) }
	errs := worlds(2, settings{}, wrap, func(w *Comm) error {
		if _, err := Iallreduce(w, make([]int64, 3), make([]int64, 2), Sum); !errors.Is(err, ErrCount) || w.base().Backend().Broken() != nil {
			return fmt.Errorf("a wrong length: %v, broken %v", err, w.base().Backend().Broken())
		}
		// Persistent ones are agreed on.
		if _, err := AllreduceInit(w, make([]int64, w.Rank()+1), make([]int64, w.Rank()+1), Sum); !errors.Is(err, ErrMismatch) {
			return fmt.Errorf("different lengths: %v", err)
		}
		return nil
	})
	errs = append(errs, worlds(2, settings{}, wrap, func(w *Comm) error {
		if w.Rank() == 1 {
			return second(Recv(w, make([]int64, 1), 0, 7))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		q := must.Get(Iallreduce(w.WithContext(ctx), make([]int64, 1), make([]int64, 1), Sum))
		if _, err := q.Wait(); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "not heard from rank 1") {
			return fmt.Errorf("a rank that does not come: %v", err)
		}
		return Send(w, []int64{1}, 1, 7)
	})...)
	for i, err := range errs {
		if err != nil {
			t.Errorf("job %d, rank %d: %v", i/2, i%2, err)
		}
	}
}

// narrow is a local backend with a library's limit of tags, and facts to tell.
type narrow struct{ backend.Comm }

func (narrow) Caps() backend.Caps {
	return backend.Caps{Backend: "mpi", Library: "Narrow MPI 1.0", MaxTag: 1<<28 - 1}
}

func (narrow) Diagnostics() []string { return []string{"the tags are narrow"} }

func TestTagAboveBackendLimitIsErrTag(t *testing.T) {
	const most = 1<<28 - 1
	for rank, err := range worlds(2, settings{}, func(bc backend.Comm) backend.Comm { return narrow{bc} }, func(w *Comm) error {
		x, y, peer := []int64{int64(w.Rank())}, make([]int64, 1), 1-w.Rank()
		if st, err := Sendrecv(w, x, peer, most, y, peer, AnyTag); err != nil || st.Tag != most || y[0] != int64(peer) {
			return fmt.Errorf("the largest tag: %v, tag %d, got %v", err, st.Tag, y)
		}
		_, recv := Recv(w, y, peer, most+1)
		_, prepared := RecvInit(w, y, peer, MaxTag)
		_, group := w.CreateGroup(w.Group(), most+1)
		for what, err := range map[string]error{"send": Send(w, x, peer, most+1), "recv": recv, "recvinit": prepared, "creategroup": group} {
			if !errors.Is(err, ErrTag) || !strings.Contains(err.Error(), "above 268435455, the largest tag of Narrow MPI 1.0") {
				return fmt.Errorf("%s: %v", what, err)
			}
		}
		if err := Send(w, x, peer, -3); !errors.Is(err, ErrTag) || !strings.Contains(err.Error(), "tag -3; want 0 to 268435455") {
			return fmt.Errorf("a negative tag: %v", err)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestDiagnosticsComeFromTheBackend(t *testing.T) {
	bc := local.New(1)[0]
	plain, told := newWorld(context.Background(), bc, settings{}), newWorld(context.Background(), narrow{bc}, settings{})
	if got := plain.Diagnostics(); got != nil {
		t.Errorf("of the local backend: %q", got)
	}
	if got := told.Diagnostics(); !slices.Equal(got, []string{"the tags are narrow"}) {
		t.Errorf("got %q", got)
	}
	if got := (*Comm)(nil).Diagnostics(); got != nil {
		t.Errorf("of nil: %q", got)
	}
	if err := plain.Close(); err != nil {
		t.Error(err)
	}
}
