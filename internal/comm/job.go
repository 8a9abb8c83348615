package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Options are the settings of a job.
type Options struct {
	Timeout   time.Duration // of each operation; 0: none
	Schedules bool          // all collectives run as schedules
	Check     bool          // every collective waits until the ranks' calls have been compared
	Job       string        // its name
	Count     bool          // the flight recorder counts operations
	Stats     string        // file for the summary of what it counts; empty: none is written
	FlightDir string        // for the files of the flight recorder; empty: none are written
	Notes     []string      // for Diagnostics
	Process   bool          // this process is the rank, and Abort ends it
	RunDir    string        // where this rank leaves notes for the launcher; empty: nowhere
	ID        int           // of this process, for its launcher: the rank that it was started as, or another number
	Worlds                  // that may follow
}

// Worlds are what a world knows of those before and after it.
type Worlds struct {
	Generation int                                                            // how many were before it
	Resized    <-chan struct{}                                                // closed when the next is to have another size; nil: never
	Next       func(ctx context.Context, world *Comm) (next *Comm, err error) // joins the next one; nil: there is none
}

// Worlds returns those of the job.
func (c *Comm) Worlds() Worlds {
	if c == nil || c.core == nil {
		return Worlds{}
	}
	return c.core.job.Worlds
}

// IsWorld reports whether c is the communicator of all ranks.
func (c *Comm) IsWorld() bool { return c != nil && c.core != nil && c.core == c.core.job.world }

// Continue tells the launcher that this rank continues without the ranks that it has lost.
func (c *Comm) Continue() { c.core.job.continueWithout(c.core) }

// job is what one rank knows of its job: all its communicators share it.
type job struct {
	Options
	ctx       context.Context // the world's
	limit     *backend.World  // the same, for the limits of operations
	ids       agree.IDs
	world     *core
	recorder  *flight.Recorder // records the rank's operations
	pendings  sync.Pool        // of *pending
	done      []func()         // called when the world has been closed
	follows   atomic.Bool      // an operation has ended because of another rank
	noting    sync.Mutex       // held to change follows and the file that says so
	vainWaits vainWaits

	open  gate.Gate          // every communicator except the world is inside until it is closed
	mu    word.Mutex         // guards the fields below, and is held to enter the gate
	comms map[*core]struct{} // the communicators that are not closed
	late  error              // what the world's Close tells of communicators: operations that were not waited for, and errors of those that it closes
}

// NewWorld makes the first communicator of a job. Its operations end when ctx does.
func NewWorld(ctx context.Context, bc backend.Comm, o Options) *Comm {
	ctx = asMapKey(ctx)
	j := &job{Options: o, ctx: ctx, comms: make(map[*core]struct{})}
	j.limit = &backend.World{Ctx: ctx, Rank: bc.Rank(), Alone: sync.OnceValue(j.endsAlone)}
	j.recorder = flight.New(o.FlightDir, flight.Origin{Name: o.Job, Backend: bc.Caps().Backend, Rank: bc.Rank(), Size: bc.Size(), Count: o.Count})
	j.recorder.Sparse()
	bc.OnWait(j.recorder.Stamp, j.recorder.StampAll)
	for _, d := range callTypes {
		j.recorder.Type(d.ID, d.Name)
	}
	j.world = j.newCore(bc, backend.WorldName, 0)
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, bc.Wake)
		j.done = append(j.done, func() { stop() })
	}
	return j.world.plain
}

// OnClose has f called when the world has been closed. It comes before the first operation.
func (c *Comm) OnClose(f func()) { c.core.job.done = append(c.core.job.done, f) }

// WriteStats writes the summary of a job to a file. The worlds are those of all its ranks, and closed.
func WriteStats(file string, worlds []*Comm) error {
	var all []*flight.Recorder
	for _, w := range worlds {
		all = append(all, w.core.recorder)
	}
	return flight.WriteStats(file, "", all...)
}

// newBound returns the limits of operations under ctx, nil if there are none.
func (j *job) newBound(ctx context.Context) *backend.Bound {
	b := &backend.Bound{Ctx: ctx, Timeout: j.Timeout, World: j.limit}
	if !b.Limited() {
		return nil
	}
	return b
}

// endsAlone reports whether this rank's context has ended while the job goes on. Before a launcher passes a request to end on
// to any rank, it leaves a note. So the first rank that such a request reaches does not count as lost to the others.
func (j *job) endsAlone() bool {
	_, err := os.Stat(filepath.Join(j.RunDir, "ending"))
	return j.RunDir == "" || err != nil
}

// Abort ends the job with a code, and this process too if it is the rank.
func (c *Comm) Abort(code int) error {
	if err := c.Usable(); err != nil {
		return c.failed("abort", err)
	}
	j, note := c.core.job, ""
	if j.Process {
		if code < 1 || code > 255 {
			code = 1
		}
		// Leave the reason for cohort run and cohort report first: the others may end as soon as they learn of it. Without
		// the file, the first rank that ends gives the job its status.
		j.recorder.Note(flight.Aborted, fmt.Sprintf("rank %d aborted the job with code %d", j.world.rank, code))
		if j.RunDir != "" {
			note = filepath.Join(j.RunDir, fmt.Sprint("aborted-", j.ID))
			_ = flight.WriteFile(note, fmt.Appendf(nil, "%d %t\n", code, j.follows.Load()))
		}
	}
	err := c.core.bc.Abort(code)
	if err == nil && j.Process {
		os.Exit(code)
	}
	if note != "" {
		_ = os.Remove(note)
	}
	return c.failed("abort", err)
}

// QuiesceFor is how long Close waits for windows that other goroutines are making, closing, or using. Those
// may wait for ranks that never arrive, or for this Close. Tests shorten it.
var QuiesceFor = 5 * time.Second

// Close closes a communicator. docs/how-it-works.md lists the steps.
func (c *Comm) Close() error {
	if c == nil || c.core == nil {
		return nil
	}
	return c.core.close(time.Now().Add(QuiesceFor)) // one deadline for all communicators together
}

// CloseWith closes a communicator. If why is not nil this rank has failed, and leaves its job: why tells the
// others, whose operations end.
func (c *Comm) CloseWith(why error) error {
	if c == nil || c.core == nil {
		return nil
	}
	w := c.core.job.world
	if why == nil || w.life.ended() {
		return c.Close()
	}
	name := fmt.Sprint("rank ", w.rank)
	text := name + " failed: " + strings.TrimPrefix(why.Error(), name+": ")
	var other interface{ Follows() bool } // implemented by the errors of JoinErrors
	if errors.As(why, &other) && other.Follows() {
		w.job.follow(nil)
	}
	// The program has canceled the operation, perhaps because the ranks hang. The records of their waits say more.
	if !w.job.follows.Load() && !errors.Is(why, backend.ErrCanceled) {
		w.recorder.Note(flight.ProgramFailed, text)
	}
	// The others may learn of this failure before that of the rank that caused it.
	var cause *backend.Fault
	if !errors.As(why, &cause) || cause.Sentinel != backend.ErrPeerLost || cause.Left {
		cause = &backend.Fault{Sentinel: backend.ErrPeerLost, Text: text}
	}
	err := w.bc.Declare(w.rank, cause)
	return cmp.Or(w.plain.Close(), c.failed("close", err))
}

// follow tells the launcher that this rank fails because of another one. The cause is an error of k, or of the program
// if k is nil. After a Shrink of k its errors tell of losses that this rank goes on without.
func (j *job) follow(k *core) {
	j.noting.Lock()
	defer j.noting.Unlock()
	if k != nil && k.shrunk {
		return
	}
	if !j.follows.Swap(true) && j.RunDir != "" {
		_ = os.WriteFile(filepath.Join(j.RunDir, fmt.Sprint("follows-", j.ID)), nil, 0o600)
	}
}

// givesUp reports whether the program has been told of a loss, or of a mismatch on k.
func (k *core) givesUp() bool {
	k.job.noting.Lock()
	defer k.job.noting.Unlock()
	return k.job.follows.Load() || k.shrunk || k.reported.Load()
}

// continueWithout is called when this rank continues without the ranks that k has lost: then it follows none of them.
func (j *job) continueWithout(k *core) {
	j.noting.Lock()
	defer j.noting.Unlock()
	k.shrunk = true
	if j.follows.Swap(false) && j.RunDir != "" {
		_ = os.Remove(filepath.Join(j.RunDir, fmt.Sprint("follows-", j.ID)))
	}
}

// closeDerived closes all communicators except the world, and waits until those that other goroutines
// are closing are closed, until end at most. No communicator is made any more.
func (j *job) closeDerived(end time.Time) {
	j.open.Shut()
	for _, k := range j.derived() {
		err := k.close(end)
		j.mu.Lock()
		j.late = cmp.Or(j.late, err)
		j.mu.Unlock()
	}
	j.open.AwaitEmpty(remaining(end))
}

// derived returns the communicators that are not closed, except the world. Their order is the same on
// all ranks, because closing a communicator that has windows may wait for the other ranks. A communicator
// comes before those that its windows stand on.
func (j *job) derived() []*core {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []*core
	for k := range j.comms {
		if k != j.world {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *core) int { return cmp.Compare(a.id, b.id) })
	return all
}

// close closes a communicator. It waits for changes and for users of windows until end. If another Close has
// begun it does nothing. The numbers are those of docs/design.md, which has the reasons.
func (k *core) close(end time.Time) error {
	// 1. Let nothing begin any more.
	if !k.life.quiesce() {
		return nil
	}
	// 2. Stop watching contexts.
	k.mu.Lock()
	handles := k.handles // no others are made from now on
	k.handles = nil
	k.mu.Unlock()
	for _, h := range handles {
		h.stop()
	}
	// 3. Wait for changes.
	j := k.job
	k.life.changes.AwaitEmpty(remaining(end))
	// 4. On the world, close all other communicators.
	if k == j.world {
		j.closeDerived(end)
	}
	// 5 and 6. Close the windows, and take the communicator.
	k.mu.Lock()
	windows := k.windows
	k.windows, k.swept = nil, true
	k.mu.Unlock()
	by := &closer{k, sync.OnceValue(k.life.takeLast)}
	by.closeWindows(windows, end)
	alone := by.takeLast()
	// 7. Find the operations for which nobody has waited.
	var mismatch error
	if alone {
		mismatch = k.runner.Quiesce(min(time.Second, remaining(end)))
	}
	unwaited := k.unwaited(alone, end)
	// 8. Close the backend's communicator, and let the job forget this one.
	err := k.bc.Close()
	k.recovery.abandon()
	for _, h := range handles {
		h.cancel()
	}
	if err = cmp.Or(mismatch, err); k.reported.Load() && errors.Is(err, backend.ErrMismatch) {
		err = nil // a call has told it
	}
	err = cmp.Or(k.plain.failed("close", err), unwaited)
	j.mu.Lock()
	delete(j.comms, k)
	if j.late = cmp.Or(j.late, unwaited); k == j.world {
		err = cmp.Or(err, j.late)
	}
	j.mu.Unlock()
	if k != j.world {
		j.open.Leave()
		return err
	}
	return cmp.Or(err, j.finish())
}

// finish ends the job, whose world has been closed. It is step 9.
func (j *job) finish() (err error) {
	j.recorder.Close()
	if j.Stats != "" && j.world.rank == 0 {
		if err = flight.WriteStats(j.Stats, j.FlightDir, j.recorder); err != nil {
			err = j.world.plain.failed("close", fmt.Errorf("%s: %w", flight.EnvStats, err))
		}
	}
	for _, f := range j.done {
		f()
	}
	return err
}
