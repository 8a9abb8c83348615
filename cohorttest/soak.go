package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/soak"
)

// Faults runs random jobs with a fault each. A job has 2 to 5 ranks that do random
// operations. At a random operation a random rank is killed, panics, exits, fails, leaves
// or stops. No rank may then wait for longer than its deadline, get a wrong result, or get
// an error other than those documented for the case, which name the lost rank. Nothing may
// be left of the job.
//
// There are as many runs as the argument says, a tenth of them in the smaller matrix.
// Every run is a subtest named after its seed, which decides all of it but the timing:
// -run 'TestFaults/^17$' repeats run 17.
//
// With COHORT_SOAK=n there are n runs, with COHORT_SOAK=m-n those from m to n. Set it only
// on a machine that does nothing else. If 1000 ranks or more have noticed a loss, 99 of
// 100 must have done so within 100 ms. If a deadline has ended the operations of 1000
// ranks or more, 99 of 100 must have ended within 50 ms of it.
//
// A [Mpiexec] launcher ends the whole job when a rank dies. There, Faults checks that the
// ranks that report have found no wrong result, that the launcher ends, and that no process is left.
func Faults(t *testing.T, l Launcher, runs int) {
	Become()
	if small() {
		runs = (runs + 9) / 10
	}
	first, last := soak.Runs(t, runs)
	// The ranks' temporary files go to a folder of this test, where leftovers show.
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := filepath.Join(temp, "reports")
	var noticed, kept []time.Duration
	for seed := first; seed <= last; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			n, k := faultRun(t, l, uint64(seed), dir)
			noticed, kept = append(noticed, n...), append(kept, k...)
		})
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if rest, err := os.ReadDir(temp); err != nil || len(rest) > 0 {
			t.Fatalf("temporary files are left after run %d: %v %v", seed, rest, err)
		}
	}
	_, mpi := l.(Mpiexec)
	for _, s := range []struct {
		what  string
		times []time.Duration
		limit time.Duration
	}{{"a lost rank was noticed", noticed, noticeLimit}, {"a deadline was kept", kept, promised}} {
		if len(s.times) == 0 {
			continue
		}
		slices.Sort(s.times)
		at := func(percent int) time.Duration { return s.times[(len(s.times)-1)*percent/100] }
		t.Logf("%s by %d ranks: half within %v, 99 of 100 within %v, all within %v", s.what, len(s.times), at(50), at(99), at(100))
		if err := tooLate(s.what, s.times, s.limit); err != nil && !mpi && os.Getenv(soak.Variable) != "" {
			t.Error(err)
		}
	}
}

// On one host, 99 of 100 ranks must notice a loss within noticeLimit. Fewer ranks than
// noticeCount cannot show that.
const (
	noticeLimit = 100 * time.Millisecond
	noticeCount = 1000
)

// tooLate returns an error if more than one rank in 100 was too late. The times are
// sorted.
func tooLate(what string, times []time.Duration, limit time.Duration) error {
	n := len(times)
	if n < noticeCount {
		return nil
	}
	if p99 := times[(n-1)*99/100]; p99 > limit {
		return fmt.Errorf("%s by 99 of 100 ranks within %v, want within %v", what, p99, limit)
	}
	return nil
}

// The faults. For goroutine ranks, killed is a panic, and exits is runtime.Goexit.
const (
	calm   = "calm"   // nothing happens
	killed = "killed" // by SIGKILL
	panics = "panics"
	exits  = "exits"
	fails  = "fails"  // returns an error, a process after it has closed its world
	leaves = "leaves" // closes its world in the middle of an operation
	halts  = "halts"  // stops until the others have given up
	pauses = "pauses" // stops for a moment
)

// plan is what happens in a run. All of it but the timing follows from the seed.
type plan struct {
	ranks, steps int
	kind         string
	victim, at   int           // the rank with the fault, and the operation before which it happens
	delay        time.Duration // how much later it happens, if it can happen during an operation
}

func planOf(seed uint64) (p plan) {
	rng := rand.New(rand.NewPCG(seed, 1))
	p.ranks = 2 + rng.IntN(4)
	p.steps = 5 + rng.IntN(30)
	p.kind = []string{calm, killed, killed, killed, killed, killed, panics, panics, exits, exits, fails, leaves, leaves, halts, pauses, pauses}[rng.IntN(16)]
	p.victim, p.at = rng.IntN(p.ranks), rng.IntN(p.steps)
	if rng.IntN(3) > 0 {
		p.delay = time.Duration(1000 << rng.IntN(12)) // from a microsecond to two milliseconds
	}
	return p
}

// mortal reports whether the victim does not live to report.
func (p plan) mortal() bool { return slices.Contains([]string{killed, panics, exits, fails}, p.kind) }

// ends reports whether the victim does not complete its operations.
func (p plan) ends() bool { return p.mortal() || p.kind == leaves }

// dies reports whether the fault is a loss, which ends the others' operations. A rank that
// leaves in good order is no loss: operations that do not need it go on.
func (p plan) dies(process bool) bool { return p.mortal() && !(p.kind == fails && process) }

// The patience of a run, and the deadlines of its operations, which are shorter: so an
// operation that misses its deadline shows, and not only as a lack of progress.
const (
	faultPatience = 2 * time.Minute
	faultDeadline = time.Minute
	haltDeadline  = 40 * time.Millisecond // of the ranks that wait for one that has stopped or left
)

// randomFault is the name of the scenario of a random job.
const randomFault = "faults/random"

// faultScenario returns the scenario of a random job, which depends on the job's seed.
func faultScenario(p plan) scenario {
	return scenario{name: randomFault, alone: true, body: randomJob,
		lost: func(rank, _ int) bool { return p.mortal() && rank == p.victim }}
}

// randomJob is one rank of one.
func randomJob(r *Rank) {
	p := planOf(r.job.Seed)
	rng := rand.New(rand.NewPCG(r.job.Seed, 2))
	pids := make([]int64, r.Size)
	err := cohort.Allgather(r.Comm, []int64{int64(os.Getpid())}, pids) // the victim may have completed it and be gone
	process, library := r.World.Caps().Processes, r.World.Caps().Library != ""
	base := r.Comm
	if rng.IntN(2) == 0 {
		base = r.World
	}
	// All operations have a deadline. If a rank halts it is near.
	ctx, cancel := context.WithTimeout(context.Background(), faultDeadline)
	defer cancel()
	var end time.Time // of the short one
	op := &player{r: r, ctx: ctx, c: base.WithContext(ctx), rng: rng, what: "the first Allgather", mem: new(sync.Mutex)}
	for k := 0; k < p.steps && err == nil; k++ {
		r.dog.Reset(r.patience)
		if k == p.at {
			if r.Rank == p.victim {
				p.strike(r, op.mem)
			}
			switch {
			case r.Rank == p.victim && !(p.kind == halts && library):
			case p.kind == pauses && process && r.Rank == (p.victim+1)%r.Size:
				defer resume(int(pids[p.victim]))()
			case p.kind == halts || p.ends() && !p.dies(process):
				// The victim has it too: afterwards it may not notice that the others have left.
				ctx, cancel := context.WithTimeout(context.Background(), haltDeadline)
				defer cancel()
				op.ctx, op.c = ctx, base.WithContext(ctx)
				end, _ = ctx.Deadline()
			}
		}
		err = op.play(k + 1)
	}
	if r.Rank == p.victim && p.kind == fails {
		p.strike(r, nil) // the others gave up waiting for this rank before its fault
	}
	if err == nil && r.Rank == p.victim && p.mortal() {
		select {} // the fault is still to come
	}
	if err == nil && !(r.Rank == p.victim && p.ends()) {
		// The operations so far may not have needed the victim. This one does.
		op.what = "the last Barrier"
		err = op.c.Barrier()
	}
	r.noticed = time.Now().UnixMicro()
	if !end.IsZero() && errors.Is(err, cohort.ErrTimeout) {
		r.late = max(0, time.Since(end)) // another rank's deadline may have been earlier
	}
	r.dog.Reset(r.patience)
	p.verdict(r, op.what, err)
	if p.dies(process) && r.Rank != p.victim {
		// The rank is gone for good.
		ctx, cancel := context.WithTimeout(context.Background(), faultDeadline)
		_, err := cohort.Recv(r.World.WithContext(ctx), make([]int64, 1), p.victim, 1<<20)
		p.verdict(r, "a receive from the lost rank", err)
		cancel()
		p.goOn(r, base)
	}
	ends := p.kind == halts && r.Rank == (p.victim+1)%r.Size // the halt of the victim
	if ends && library {
		defer resume(int(pids[p.victim]))() // MPI_Finalize waits for every rank
	}
	switch err := r.World.Close(); {
	case err == nil, errors.Is(err, cohort.ErrPeerLost):
	case (p.kind == leaves || p.kind == halts) && errors.Is(err, cohort.ErrRequest): // of an operation that stopped at its first error
	case library && errors.Is(err, cohort.ErrBroken) && (p.kind == halts || p.kind == leaves):
		stuckInLibrary.Store(true) // MPI_Finalize waits for operations that others gave up
	default:
		r.Errorf("closing the world: %v", err)
	}
	switch {
	case !ends || library:
	case process: // until it has ended: a signal that comes before it has stopped is lost
		for begun := time.Now(); continueProcess(int(pids[p.victim])) == nil && time.Since(begun) < faultPatience; time.Sleep(time.Millisecond) {
		}
	default:
		r.job.resumed.Store(true)
	}
}

// stuckInLibrary is set if a goroutine of this process has stayed in an MPI call.
var stuckInLibrary atomic.Bool

// goOn has the survivors of a loss shrink and do all kinds of operations.
func (p plan) goOn(r *Rank, base *cohort.Comm) {
	ctx, cancel := context.WithTimeout(context.Background(), faultDeadline)
	defer cancel()
	c, err := base.WithContext(ctx).Shrink()
	if errors.Is(err, cohort.ErrNotSupported) {
		return
	}
	r.OK(err)
	works(r, c, without(r, func(rank, _ int) bool { return rank == p.victim }))
}

// resume continues a stopped process again and again until stop is called: a signal that
// comes before the process has stopped is lost.
func resume(pid int) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = continueProcess(pid) // it may have ended
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-done }
}

// strike makes the planned fault happen to this rank. mem is the player's.
func (p plan) strike(r *Rank, mem *sync.Mutex) {
	note := func() {
		text := strconv.FormatInt(time.Now().UnixMicro(), 10)
		_ = os.WriteFile(filepath.Join(r.job.Dir, "struck"), []byte(text), 0o600)
	}
	after := func(f func()) {
		if p.delay == 0 {
			f()
		}
		time.AfterFunc(p.delay, f)
	}
	process := r.World.Caps().Processes
	switch {
	case p.kind == fails:
		note()
		r.OK(lostRank{r.Rank})
	case p.kind == leaves:
		after(func() {
			note()
			mem.Lock() // what Close frees must not be in use
			defer mem.Unlock()
			r.World.Close()
		})
	case p.kind == killed && process:
		self := must(os.FindProcess(os.Getpid()))
		after(func() { note(); _ = self.Kill(); select {} })
	case p.kind == exits && process:
		after(func() { note(); os.Exit(7) })
	case p.kind == panics && process:
		after(func() { note(); panic(lostRank{r.Rank}) })
	case p.kind == exits:
		note()
		runtime.Goexit()
	case p.mortal():
		note()
		panic(lostRank{r.Rank})
	case process && (p.kind == halts || p.kind == pauses):
		r.OK(stopProcess(os.Getpid()))
	case p.kind == halts:
		for !r.job.resumed.Load() {
			time.Sleep(time.Millisecond)
		}
	case p.kind == pauses:
		time.Sleep(p.delay) // the fault itself
	}
}

// verdict checks how a survivor's operations ended: the error of the first that failed,
// or the result of the last.
func (p plan) verdict(r *Rank, what string, err error) {
	is := func(all ...error) bool {
		return slices.ContainsFunc(all, func(s error) bool { return errors.Is(err, s) })
	}
	var op *cohort.OpError
	switch {
	case err != nil && !errors.As(err, &op):
		r.Errorf("%s: the error %v is no OpError", what, err)
	case p.kind == leaves && r.World.Caps().Library != "" && is(cohort.ErrMismatch) && strings.Contains(err.Error(), "called Close(window"):
		// The rank has closed its world and with it a window, which ranks close together there.
	case is(cohort.ErrMismatch, cohort.ErrInternal):
		r.Errorf("%s: %v", what, err)
	case p.kind == calm || p.kind == pauses:
		if err != nil {
			r.Errorf("%s: %v; nothing was wrong", what, err)
		}
	case p.kind == leaves && r.Rank == p.victim:
		// It, or a rank that it waited for, may have reached a deadline before.
		if err != nil && !is(cohort.ErrClosed, cohort.ErrBroken, cohort.ErrTimeout, cohort.ErrPeerLost, cohort.ErrCanceled) {
			r.Errorf("%s: %v on the rank that left, want ErrClosed", what, err)
		}
	case !p.dies(r.World.Caps().Processes) && err == nil && r.Rank != p.victim && r.World.Caps().Library == "":
		// Over MPI a late rank may still complete what only some ranks have given up.
		r.Errorf("%s succeeded while a rank %s, want ErrTimeout, ErrPeerLost or ErrCanceled", what, p.kind)
	case !p.dies(r.World.Caps().Processes):
		// A sender may cancel a message, at its deadline, that a probe has found.
		if is(cohort.ErrClosed) || err != nil && !is(cohort.ErrTimeout, cohort.ErrPeerLost, cohort.ErrCanceled) {
			r.Errorf("%s: %v while a rank %s, want ErrTimeout, ErrPeerLost or ErrCanceled", what, err, p.kind)
		}
	case !is(cohort.ErrPeerLost):
		r.Errorf("%s: got error %v, want ErrPeerLost", what, err)
	default:
		if !regexp.MustCompile(fmt.Sprintf(`\branks? (\d+, )*%d\b`, p.victim)).MatchString(err.Error()) {
			r.Errorf("%s: the error does not name rank %d: %v", what, p.victim, err)
		}
	}
}
