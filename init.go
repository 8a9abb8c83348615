package cohort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/pod"
)

// Init joins the job that this process was started in and returns its world, the communicator of all
// ranks. Without a launcher, the world has one rank. cfg may be nil.
//
// The operations of the world and of all communicators made from it end when ctx does. Close the
// world to leave the job. The other ranks count a process that ends without closing it as lost.
//
// A process has one world at a time: while it is open, another Init is [ErrInit]. A process joins a
// job of several ranks once: Init after Close is ErrInit too. A world of one rank can be closed and
// made again, except on the mpi backend, where the library can be initialized only once. These
// limits do not apply to [Run].
//
// Collective: all processes of the job call it, once.
//
// Errors: [ErrInit] for wrong settings, for ranks that did not join in time, and for a second
// world; [ErrNotSupported] for a backend that is not available; [ErrPeerLost] on tcp if a rank is
// lost before all have joined. Pods of a Kubernetes Job wait for its replacement instead.
//
// Deadline: [ErrInit] if ctx ends before all ranks have joined.
func Init(ctx context.Context, cfg *Config) (*Comm, error) {
	var s settings
	fail := func(err error) (*Comm, error) {
		return nil, &OpError{Op: "init", Rank: s.rankOf(cfg), Peer: Undefined, Tag: Undefined, Err: err}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if err := self.begin(); err != nil {
		return fail(err)
	}
	world, err := s.join(ctx, cfg)
	if err != nil {
		self.set(notJoined, nil)
		return fail(err)
	}
	return world, nil
}

// join is Init without the check for a second world. It completes the settings.
func (s *settings) join(ctx context.Context, cfg *Config) (*Comm, error) {
	takeSecret(osEnv)
	var err error
	if *s, err = resolve(cfg, osEnv); err != nil {
		return nil, err
	}
	name, notMPI := s.choose(osEnv)
	if value := osEnv.get(generation.Env); value != "" && s.Size > 0 && !s.foreign && !cfg.setsRank() && (name == "shm" || name == "tcp") {
		g, id, err := self.dial(value)
		if err != nil {
			return nil, err
		}
		s.reach()
		s.markEnvironment(id, osEnv)
		world, err := s.rejoiner(ctx, name, &launcher{g}).next(ctx, nil)
		if errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled) {
			err = fault(ErrInit, err.Error())
		}
		return world, err
	}
	bc, err := s.open(ctx, name)
	if _, ok := errors.AsType[*mpifind.Unusable](err); ok && s.Backend == "auto" && s.MPI.Lib == "" {
		if other := s.withoutMPI(osEnv); other != "" {
			name, notMPI = other, err
			bc, err = s.open(ctx, name)
		}
	}
	if notMPI != nil {
		note := "backend mpi is not used: " + strings.TrimPrefix(backend.AsFault(notMPI).Text, "backend mpi is not available: ")
		if err != nil {
			return nil, fmt.Errorf("%w; %s", err, note)
		}
		s.notes = append(s.notes, note)
	}
	if err != nil {
		return nil, err
	}
	if err := s.announce(name); err != nil {
		_ = bc.Close()
		return nil, err
	}
	s.markEnvironment(s.Rank, osEnv)
	var p protocol
	switch {
	case name != "shm" && name != "tcp":
	case s.podWorlds != nil:
		s.worlds.Generation = *s.podWorlds
		p = pods{}
	default:
		p = new(survivors)
	}
	return s.rejoiner(ctx, name, p).enter(bc, *s), nil
}

// rejoiner returns what takes this process through its worlds on a backend.
func (s *settings) rejoiner(ctx context.Context, name string, p protocol) *rejoiner {
	id, dir := *s.id, s.runDir
	open := func(ctx context.Context, s settings) (backend.Comm, error) { return s.open(ctx, name) }
	return &rejoiner{protocol: p, ctx: ctx, first: *s, open: open, entered: func(w *Comm) {
		self.enter(w)
		w.noteOpen(name, id, dir)
	}}
}

// open joins the job on a backend.
func (s *settings) open(ctx context.Context, name string) (backend.Comm, error) {
	k := lookup(name)
	switch {
	case k.open == nil && k.missing != "":
		return nil, absent(name)
	case k.open == nil:
		all := append([]string{"auto"}, names(func(known) bool { return true })...)
		source := "Config.Backend"
		if osEnv.get("COHORT_BACKEND") == name {
			source = "COHORT_BACKEND"
		}
		return nil, initFault("%s is %q, an unknown backend; want %s, or import the package that registers it", source, name, enumerate(all))
	}
	if err := s.unfit(name, osEnv); err != nil && k.missing == "" {
		return nil, err
	}
	if s.stats != "" {
		s.FlightDir = cmp.Or(s.FlightDir, flight.RanksFolder(s.stats))
	}
	if err := s.checkFlight(); err != nil {
		return nil, err
	}
	leave, err := s.launched(ctx, name, osEnv)
	if err != nil {
		return nil, err
	}
	defer leave()
	if s.count && s.placed != unplaced && s.FlightDir != "" {
		// Of an earlier job, for which rank 0 could take it. Rank 0 joins after all ranks have come here.
		_ = os.Remove(filepath.Join(s.FlightDir, flight.FileName(s.Rank)))
	}
	return k.open(ctx, *s)
}

// process enforces the rule that a process has one world at a time and joins a job of several ranks
// once. MPI allows no more (MPI-4.1 section 11.4), and the rule is the same on every backend.
type process struct {
	mu    sync.Mutex
	state processState
	world *Comm  // what Init returned, until it is closed: the world keeps shared memory mapped
	text  string // describes it

	launch *generation.Client // nil before the first Init under a launcher that keeps generations
	id     int                // of this process, for that launcher
}

// dial returns the client of the launcher that keeps generations. A process has one, also for an Init after one that failed.
func (p *process) dial(value string) (*generation.Client, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.launch == nil {
		var err error
		if p.launch, p.id, err = generation.Dial(value); err != nil {
			return nil, 0, err
		}
	}
	return p.launch, p.id, nil
}

type processState uint8

const (
	notJoined processState = iota
	joining
	isOpen
	hasLeft
)

var self process

// begin is called when Init begins.
func (p *process) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.state {
	case joining:
		return initFault("another goroutine of this process is in Init; call it once")
	case isOpen:
		return initFault("this process has joined a job before, as %s, and its world is open; use that world, or a Dup of it", p.text)
	case hasLeft:
		return initFault("this process has joined a job before, as %s, and left it; a job is joined once, so close the world when the program ends", p.text)
	}
	p.state = joining
	return nil
}

// joins reports whether this process is a rank, or has been one of several.
func (p *process) joins() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state != notJoined
}

// open returns the world of this process, nil if it has none.
func (p *process) open() *Comm {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.world
}

func (p *process) set(state processState, world *Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state, p.world = state, world; world != nil {
		p.text = fmt.Sprintf("rank %d of %d on %s", world.Rank(), world.Size(), world.Backend())
	}
}

// enter makes a world that of this process, until the world is closed or the process enters another.
func (p *process) enter(world *Comm) {
	p.set(isOpen, world)
	world.base().OnClose(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.world != world {
			return
		}
		p.world = nil
		if p.state = hasLeft; world.Size() == 1 {
			p.state = notJoined
		}
	})
}

// rankOf returns the rank to name in an error of Init, even if the settings are wrong or incomplete.
func (s *settings) rankOf(cfg *Config) int {
	switch {
	case s.placed != unplaced:
		return s.Rank
	case cfg.setsRank():
		return cfg.Rank
	}
	_, rank := osEnv.rank()
	if l := mpifind.Launched(osEnv); rank == "" && l != nil {
		return l.Rank
	}
	// Of PMI's launchers, some say it to their server only. A pod has its index even if it lacks the size.
	n, _ := strconv.Atoi(cmp.Or(rank, osEnv.get("PMI_ID"), osEnv.get(pod.Index)))
	return n
}

// newWorld makes the first communicator of a job.
func newWorld(ctx context.Context, bc backend.Comm, s settings) *Comm {
	o := comm.Options{
		Timeout: s.Timeout, Schedules: s.Collectives == CollectivesSchedule, Check: s.Check, Job: s.Job,
		Count: s.count, Stats: s.stats, FlightDir: s.FlightDir, Notes: s.notes, Worlds: s.worlds,
	}
	if s.id != nil {
		o.Process, o.RunDir, o.ID = true, s.runDir, *s.id
	}
	return (*Comm)(comm.NewWorld(ctx, bc, o))
}

// choose returns the name of the backend to open and, under a launcher whose ranks take mpi if they can, why this one
// does not.
func (s *settings) choose(env environment) (name string, notMPI error) {
	if s.Backend != "auto" {
		return s.Backend, nil
	}
	if s.placed != unplaced {
		// The launcher sets rank and size but no backend. With a coordinator's address the ranks
		// may be on several nodes.
		if s.TCP.Coordinator != "" {
			return "tcp", nil
		}
		if s.Size > 1 || s.Job != "" {
			return "shm", nil
		}
		return "local", nil
	}
	// A single process needs no MPI. It may run in a shell that a launcher started.
	if l := mpifind.Launched(env); (l == nil || l.Size <= 1) && env.get("PMI_PORT") == "" {
		return "local", nil
	}
	// The program may be built without MPI, or the machine may have no library that fits the launcher.
	if s.MPI.Lib == "" {
		if err := s.available("mpi", env); err != nil {
			if other := s.withoutMPI(env); other != "" {
				return other, err
			}
		}
	}
	return "mpi", nil
}

func init() {
	// Local has the highest priority, because it is available only to a process without other ranks.
	register("local", known{priority: 60, open: func(context.Context, settings) (backend.Comm, error) { return local.New(1)[0], nil }})
}

// announce reports to cohort run that this program continues after failures. It writes a file in the
// folder that cohort run has made for the job.
func (s *settings) announce(backend string) error {
	if !s.Resilient || s.runDir == "" || backend == "local" || backend == "mpi" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(s.runDir, "resilient"), nil, 0o600); err != nil {
		return initFault("cannot report Config.Resilient to the launcher (COHORT_RUN_DIR): %v", err)
	}
	return nil
}

// noteOpen leaves a note for cohort run, until the world is closed: a process that ends before that has failed, whatever its
// status. Where the note cannot be written, cohort run goes by the status.
func (c *Comm) noteOpen(backend string, id int, dir string) {
	if dir != "" && backend != "local" {
		note := filepath.Join(dir, fmt.Sprint("open-", id))
		_ = os.WriteFile(note, nil, 0o600)
		c.base().OnClose(func() {
			if w := self.open(); w == nil || w == c { // else Rejoin has entered another world before
				_ = os.Remove(note)
			}
		})
	}
}
