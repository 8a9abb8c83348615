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
)

// soakVariable is the number of runs that Faults does instead of what it was asked for, or
// the first and the last of them. Set, it is also a promise that the machine has nothing else to do: Test
// then fails above promised, and Faults above noticeLimit.
const soakVariable = "COHORT_SOAK"

// Faults checks what happens when something does, runs times: a job of 2 to 5 ranks does random
// operations, and at a random one a random rank is killed, panics, exits, gives up, leaves, or stands
// still. No rank may wait for longer than its deadline, get a wrong result, or an error that is not one
// of those that the documentation names for the case, with the rank that was lost; nothing may be left
// of the job. Every run is a subtest named after its seed, which says all of it but the timing, so that
// -run 'TestFaults/^17$' does run 17 again. With COHORT_SOAK=n there are n runs,
// with COHORT_SOAK=m-n those from m to n, for a long series in parts. Either is for a machine that has nothing
// else to do: where 1000 ranks or more have noticed a loss, 99 of 100 are to have done so within 100 ms, and where a deadline
// has ended the operations of as many, within 50 ms of it.
//
// Of a [Mpiexec] the launcher ends the job when a rank does: there it is enough that the ranks that
// come to report have found no wrong result, that the launcher ends, and that no process is left, and no
// file in /dev/shm but those of [Mpiexec.Leaves].
func Faults(t *testing.T, l Launcher, runs int) {
	become()
	first := 1
	if text := os.Getenv(soakVariable); text != "" {
		var ok bool
		if first, runs, ok = soakRuns(text); !ok {
			t.Fatalf("%s is %q: want the number of runs, or the first and the last as in 101-200", soakVariable, text)
		}
	} else if small() {
		runs = (runs + 9) / 10
	}
	// What the ranks leave among the temporary files shows in a folder of their own.
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := filepath.Join(temp, "reports")
	var noticed, kept []time.Duration
	for seed := first; seed < first+runs; seed++ {
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
		if err := tooLate(s.what, s.times, s.limit); err != nil && !mpi && os.Getenv(soakVariable) != "" {
			t.Error(err)
		}
	}
}

// Losses on one host are to be noticed by 99 of 100 ranks within that time, which so many can show, and is no matter of
// a machine that has other things to do. So are deadlines to be kept within promised, where there may be more ranks than
// processors.
const (
	noticeLimit = 100 * time.Millisecond
	noticeCount = 1000
)

// tooLate says that ranks were too late; the times are sorted.
func tooLate(what string, times []time.Duration, limit time.Duration) error {
	n := len(times)
	if n < noticeCount {
		return nil
	}
	if p99 := times[(n-1)*99/100]; p99 > limit {
		return fmt.Errorf("%s by 99 of 100 ranks within %v, and not within %v", what, p99, limit)
	}
	return nil
}

// soakRuns reads which runs a text asks for: the first, and how many.
func soakRuns(text string) (first, runs int, ok bool) {
	from, to, part := strings.Cut(text, "-")
	if !part {
		from, to = "1", text
	}
	first, err := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	return first, last - first + 1, err == nil && err2 == nil && first >= 1 && last >= first
}

// The faults. Where ranks are goroutines, kill and exit are what comes nearest: a panic, and the end of
// the goroutine.
const (
	calm   = "calm"   // nothing happens
	killed = "killed" // by SIGKILL
	panics = "panics"
	exits  = "exits"
	fails  = "fails"  // returns an error, a process after it has closed its world
	leaves = "leaves" // closes its world in the middle of an operation
	halts  = "halts"  // stands still until the others have given up
	pauses = "pauses" // stands still for a moment
)

// plan is what happens in a run: all of it but the timing follows from the seed.
type plan struct {
	ranks, steps int
	kind         string
	victim, at   int           // which rank it meets, before which operation
	delay        time.Duration // how long after that, for what can come in the middle of an operation
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

// mortal reports whether the rank that the fault meets does not live to report.
func (p plan) mortal() bool { return slices.Contains([]string{killed, panics, exits, fails}, p.kind) }

// ends reports whether that rank does not come to the end of its operations.
func (p plan) ends() bool { return p.mortal() || p.kind == leaves }

// dies reports whether the loss of that rank ends the others' operations. Who leaves in good order is
// no loss: what does not name it goes on, or waits in vain.
func (p plan) dies(process bool) bool { return p.mortal() && !(p.kind == fails && process) }

// patience is how long a run may go without progress, as of a scenario; operations have a deadline
// before that, so that an operation that does not keep it is told from one that is never called.
const (
	faultPatience = 2 * time.Minute
	faultDeadline = time.Minute
	haltDeadline  = 40 * time.Millisecond // of those who wait for a rank that stands still, or has left
)

// randomFault is the name of the scenario of a random job.
const randomFault = "faults/random"

// faultScenario is the scenario of a random job. What it does depends on the job's seed.
func faultScenario(p plan) scenario {
	return scenario{name: randomFault, alone: true, body: soak,
		lost: func(rank, _ int) bool { return p.mortal() && rank == p.victim }}
}

// halted has, for a job whose ranks are goroutines, what a rank that stands still waits for.
var halted sync.Map

// soak is one rank of a random job.
func soak(r *Rank) {
	p := planOf(r.job.Seed)
	rng := rand.New(rand.NewPCG(r.job.Seed, 2))
	pids := make([]int64, r.Size)
	err := cohort.Allgather(r.Comm, []int64{int64(os.Getpid())}, pids) // the victim may be through with it, and gone
	process, library := r.World.Caps().Processes, r.World.Caps().Library != ""
	gone, _ := halted.LoadOrStore(r.job.Dir, make(chan struct{}))
	base := r.Comm
	if rng.IntN(2) == 0 {
		base = r.World
	}
	// Everybody's operations have a deadline. Where a rank stands still it comes soon.
	ctx, cancel := context.WithTimeout(context.Background(), faultDeadline)
	defer cancel()
	var end time.Time // of the short one
	op := &player{r: r, ctx: ctx, c: base.WithContext(ctx), rng: rng, what: "the first Allgather", mem: new(sync.Mutex)}
	for k := 0; k < p.steps && err == nil; k++ {
		r.dog.Reset(r.patience)
		if k == p.at {
			if r.Rank == p.victim {
				p.strike(r, gone.(chan struct{}), op.mem)
			}
			switch {
			case r.Rank == p.victim && !(p.kind == halts && library):
			case p.kind == pauses && process && r.Rank == (p.victim+1)%r.Size:
				defer resume(int(pids[p.victim]))()
			case p.kind == halts || p.ends() && !p.dies(process):
				// So has the rank itself afterwards, where it does not hear that the others have left.
				ctx, cancel := context.WithTimeout(context.Background(), haltDeadline)
				defer cancel()
				op.ctx, op.c = ctx, base.WithContext(ctx)
				end, _ = ctx.Deadline()
			}
		}
		err = op.play(k + 1)
	}
	if r.Rank == p.victim && p.kind == fails {
		p.strike(r, nil, nil) // the others, waiting for this rank, have given up before it came to that
	}
	if err == nil && r.Rank == p.victim && p.mortal() {
		select {} // it comes yet
	}
	if err == nil && !(r.Rank == p.victim && p.ends()) {
		// The operations may not have needed the victim. This one does.
		op.what = "the last Barrier"
		err = op.c.Barrier()
	}
	r.noticed = time.Now().UnixMicro()
	if !end.IsZero() && errors.Is(err, cohort.ErrTimeout) {
		r.late = max(0, time.Since(end)) // another's may have come first
	}
	r.dog.Reset(r.patience)
	p.verdict(r, op.what, err)
	if p.dies(process) && r.Rank != p.victim {
		// Whatever it was, the rank is gone for good.
		ctx, cancel := context.WithTimeout(context.Background(), faultDeadline)
		_, err := cohort.Recv(r.World.WithContext(ctx), make([]int64, 1), p.victim, 1<<20)
		p.verdict(r, "a receive from the lost rank", err)
		cancel()
		p.goOn(r, base)
	}
	release := func() {
		if p.kind != halts || r.Rank != (p.victim+1)%r.Size {
			return
		}
		if process {
			r.OK(continueProcess(int(pids[p.victim])))
		} else {
			close(gone.(chan struct{}))
			halted.Delete(r.job.Dir)
		}
	}
	if library {
		release() // MPI_Finalize waits for every rank
	}
	switch err := r.World.Close(); {
	case err == nil, errors.Is(err, cohort.ErrPeerLost):
	case library && errors.Is(err, cohort.ErrBroken) && (p.kind == halts || p.kind == leaves):
		stuckInLibrary.Store(true) // MPI_Finalize waits for what others gave up
	default:
		r.Errorf("closing the world: %v", err)
	}
	if !library {
		release()
	}
}

// stuckInLibrary says that a goroutine of this process has stayed in a call of MPI's.
var stuckInLibrary atomic.Bool

// goOn has the survivors of a loss do more random operations, by themselves.
func (p plan) goOn(r *Rank, base *cohort.Comm) {
	ctx, cancel := context.WithTimeout(context.Background(), faultDeadline)
	defer cancel()
	c, err := base.WithContext(ctx).Shrink()
	if errors.Is(err, cohort.ErrNotSupported) {
		return
	}
	if err != nil {
		r.Errorf("Shrink without rank %d: %v", p.victim, err)
		return
	}
	rank := r.Rank
	if p.victim < rank {
		rank--
	}
	if c.Size() != r.Size-1 || c.Rank() != rank {
		r.Errorf("after Shrink without rank %d: rank %d of %d, want %d of %d", p.victim, c.Rank(), c.Size(), rank, r.Size-1)
		return
	}
	op := &player{r: r, ctx: ctx, c: c.WithContext(ctx), rng: rand.New(rand.NewPCG(r.job.Seed, 3)), mem: new(sync.Mutex)}
	for k := range 5 {
		if err := op.play(1000 + k); err != nil {
			r.Errorf("%s without rank %d: %v", op.what, p.victim, err)
			return
		}
	}
	all := 0
	for i := range c.Size() {
		all |= 1 << i
	}
	if got, err := op.c.Agree(all &^ (1 << rank)); err != nil || got != 0 {
		r.Errorf("Agree without rank %d: %b, %v, want 0", p.victim, got, err)
	}
}

// resume sends a process on until it is told to stop doing so: a signal that comes before the process
// has stopped is lost.
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

// strike does to this rank what the plan says. mem is the player's.
func (p plan) strike(r *Rank, gone <-chan struct{}, mem *sync.Mutex) {
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
		r.OK(casualty{r.Rank})
	case p.kind == leaves:
		after(func() {
			note()
			mem.Lock() // what Close gives back must not be in use
			defer mem.Unlock()
			r.World.Close()
		})
	case p.kind == killed && process:
		self, err := os.FindProcess(os.Getpid())
		r.OK(err)
		after(func() { note(); _ = self.Kill(); select {} })
	case p.kind == exits && process:
		after(func() { note(); os.Exit(7) })
	case p.kind == panics && process:
		after(func() { note(); panic(casualty{r.Rank}) })
	case p.kind == exits:
		note()
		runtime.Goexit()
	case p.mortal():
		note()
		panic(casualty{r.Rank})
	case process && (p.kind == halts || p.kind == pauses):
		r.OK(stopProcess(os.Getpid()))
	case p.kind == halts:
		<-gone
	case p.kind == pauses:
		time.Sleep(p.delay) // the fault itself: nothing waits for it to be over
	}
}

// verdict checks how an operation of a survivor ended: the first that failed, or the last.
func (p plan) verdict(r *Rank, what string, err error) {
	is := func(all ...error) bool {
		return slices.ContainsFunc(all, func(s error) bool { return errors.Is(err, s) })
	}
	var op *cohort.OpError
	switch {
	case err != nil && !errors.As(err, &op):
		r.Errorf("%s: the error %v is no OpError", what, err)
	case p.kind == leaves && r.World.Caps().Library != "" && is(cohort.ErrMismatch) && strings.Contains(err.Error(), "called Close(window"):
		// Closing its world the rank has closed a window, which there the ranks do together.
	case is(cohort.ErrMismatch, cohort.ErrInternal):
		r.Errorf("%s: %v", what, err)
	case p.kind == calm || p.kind == pauses:
		if err != nil {
			r.Errorf("%s: %v; nothing was wrong", what, err)
		}
	case p.kind == leaves && r.Rank == p.victim:
		// It may have waited too long before, or for others who had.
		if err != nil && !is(cohort.ErrClosed, cohort.ErrBroken, cohort.ErrTimeout, cohort.ErrPeerLost, cohort.ErrCanceled) {
			r.Errorf("%s: %v on the rank that left, want ErrClosed", what, err)
		}
	case !p.dies(r.World.Caps().Processes) && err == nil && r.Rank != p.victim && r.World.Caps().Library == "":
		// Over MPI a rank that was too late can still come to what only some have given up.
		r.Errorf("%s went well while a rank %s, want ErrTimeout, ErrPeerLost or ErrCanceled", what, p.kind)
	case !p.dies(r.World.Caps().Processes):
		// A sender whose time was up takes a message back that a probe has found.
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
