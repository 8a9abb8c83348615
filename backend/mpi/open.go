//go:build cgo && linux

package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
	"github.com/cohort-hpc/cohort/topo"
)

// Config is how to join an MPI job.
type Config struct {
	Library       string // path of the library, empty to search
	Check         bool   // detect mismatched collectives
	Deterministic bool   // reduce in the order of the other backends
	Bounded       bool   // operations can end early, by a deadline or a canceled context

	Settings mpiquirks.Settings
}

// opened ensures that a process joins once: MPI cannot be initialized again. It also keeps all that the library may
// still use, whatever the program forgets: memory that the collector found pinned would end the process.
var opened struct {
	sync.Mutex
	before bool
	joined *process
}

func initFault(format string, args ...any) error {
	return backend.Faultf(backend.ErrInit, format, args...)
}

// Open joins the job in which an MPI launcher started this process, and returns its first
// communicator. All processes of the job call it, once.
func Open(ctx context.Context, cfg Config) (backend.Comm, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.before {
		return nil, initFault("this process has joined a job before, and MPI can be initialized only once; call Init once per process")
	}
	level, err := levelOf(cfg.Settings.ThreadLevel)
	if err != nil {
		return nil, err
	}
	p := &process{owned: true}
	p.departed.at = make(map[int]time.Time)
	launcher := mpifind.Launched(os.LookupEnv)
	job := topo.ThisJob()
	if node, err := topo.Here(); err == nil { // an unknown node counts as not oversubscribed
		cfg.Settings.Oversubscribed = cfg.Settings.Oversubscribed || oversubscribed(job, node)
	}
	own, _ := os.Hostname()
	p.hosts = []string{job.HostName(own)}
	if err := p.load(cfg); err != nil {
		return nil, err
	}
	opened.before, opened.joined = true, p
	if err := p.initialize(ctx, level); err != nil {
		return nil, err
	}
	if err := p.alone(launcher); err != nil {
		p.leave("", true, leaveFor)
		return nil, err
	}
	// After a later failure MPI is not finalized: the other ranks may never call MPI_Finalize.
	var c *comm
	if p.thread == nil { // no other thread may call
		return p.join(cfg)
	}
	err = within(ctx, "the first collectives of the job have not returned", func() (err error) {
		c, err = p.join(cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// within returns f's result, or an error if ctx ends first.
func within(ctx context.Context, late string, f func() error) error {
	if ctx.Done() == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return backend.Faultf(backend.ErrInit, "%s: %v; check that all processes of the job are running", late, context.Cause(ctx))
	}
}

func levelOf(name string) (libmpi.Level, error) {
	if name == "" {
		return libmpi.Multiple, nil
	}
	for l := libmpi.Single; l <= libmpi.Multiple; l++ {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, initFault("thread level %q: want single, funneled, serialized or multiple", name)
}

// readers are the files of libraries below MPI that read a variable as soon as they are loaded,
// which a tool may have caused earlier. Other variables are read when MPI is initialized.
var readers = map[string]string{"UCX_HANDLE_ERRORS": "libucs.", "UCX_DEBUG_SIGNO": "libucs.", "IPATH_NO_BACKTRACE": "libinfinipath."}

// load finds and loads the library, and sets its environment variables before.
func (p *process) load(cfg Config) error {
	present, late := "", false
	if libmpi.Present() {
		l, err := libmpi.Open("")
		if err != nil {
			return initFault("the MPI library in this process: %v", err)
		}
		present = l.Path
		late, _, _, _ = libmpi.State()
	}
	libs, err := mpifind.Choose(cfg.Library, os.LookupEnv, present)
	if err != nil {
		return initFault("%v", err)
	}
	var failed []string
	for _, l := range libs {
		settings, err := cfg.Settings.Environment(l.Family, l.Vendor, l.Version, os.LookupEnv)
		if err != nil {
			return initFault("%v: %s", l, asFault(err).Text)
		}
		for i, s := range settings {
			if !s.Applied {
				continue
			}
			if reader := readers[s.Name]; late || reader != "" && inProcess(reader) {
				settings[i].Applied, settings[i].Late = false, true
			} else if err := os.Setenv(s.Name, s.Value); err != nil {
				return initFault("setting %s: %v", s.Name, err)
			}
		}
		path := l.Path
		if present != "" {
			path = ""
		}
		lib, err := libmpi.Open(path)
		if err == nil {
			p.lib, p.settings = lib, settings
			p.unprofiled = cfg.Settings.Profiling && !slices.ContainsFunc(settings, func(s mpiquirks.Setting) bool { return s.Why == mpiquirks.WhyProfile })
			// The library's text may tell more than the file's name.
			vendor, version := mpiquirks.Identify(lib.Text)
			if vendor == "" {
				vendor, version = l.Vendor, l.Version
			}
			r := mpiquirks.ParseRelease(version)
			p.maker = mpiquirks.Of(mpifind.Family(lib.ABI), vendor, r)
			p.quirks = mpiquirks.QuirksIn(p.maker, r)
			return nil
		}
		failed = append(failed, fmt.Sprintf("%v: %v", l, err))
	}
	return &mpifind.Unusable{Err: initFault("no MPI library can be loaded: %s", strings.Join(failed, "; "))}
}

// initialize initializes MPI on a thread that nothing else uses, or on the caller's thread if only
// that one may call MPI afterwards.
func (p *process) initialize(ctx context.Context, asked libmpi.Level) error {
	initialized, finalized, level, code := libmpi.State()
	switch {
	case code != 0:
		return initFault("MPI_Initialized: %v", libmpi.Error(code))
	case finalized:
		return initFault("MPI is already finalized in this process")
	case initialized: // by other code, which also finalizes it
		p.owned, p.level = false, level
	case asked < libmpi.Serialized:
		runtime.LockOSThread()
		if p.level, code = libmpi.Init(asked); code != 0 {
			return initFault("MPI_Init_thread: %v", libmpi.Error(code))
		}
	default:
		p.thread = newThread()
		err := within(ctx, "MPI_Init_thread has not returned", func() error {
			p.thread.do(func() { p.level, code = libmpi.Init(asked) })
			if code != 0 {
				p.thread.end()
				return initFault("MPI_Init_thread: %v", libmpi.Error(code))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	p.level = min(p.level, asked)
	if p.level < asked {
		p.leave("", true, leaveFor)
		return initFault("thread level: %s grants %v, and %v was requested; set COHORT_MPI_THREAD=%[2]v if that will do, "+
			"or use another library", p.lib.Name(), p.level, asked)
	}
	if initialized && p.level < libmpi.Serialized {
		runtime.LockOSThread()
		libmpi.Adopt()
	}
	// A blocking call would exclude all others.
	p.polled = p.level == libmpi.Serialized
	libmpi.Restrict(p.level)
	return nil
}

// alone returns an error if the library sees one process and the launcher started more.
func (p *process) alone(launcher *mpifind.Launcher) error {
	_, size, _, code := libmpi.World().Facts()
	if code != 0 || launcher == nil || launcher.Size == 1 || size > 1 {
		return nil
	}
	do := launcher.Advice(mpifind.Family(p.lib.ABI), p.lib.Path)
	return &mpifind.Unusable{Err: initFault("this process is one of %d started by %v, but alone to %s: %s; COHORT_BACKEND=shm, or tcp on several nodes, needs no MPI library",
		launcher.Size, launcher, p.lib.Name(), do)}
}

// join makes the first communicator. The ranks agree on how they work.
func (p *process) join(cfg Config) (*comm, error) {
	world := libmpi.World()
	rank, size, maxTag, code := world.Facts()
	if code != 0 {
		return nil, initFault("MPI_COMM_WORLD: %v", libmpi.Error(code))
	}
	p.maxTag, p.folds = maxTag, newFolds(maxTag)
	p.guard, p.noLength = p.quirks.Has(mpiquirks.QuirkOverrun), p.quirks.Has(mpiquirks.QuirkNoLength)
	p.engine.background = p.level >= libmpi.Serialized
	if size == 1 && p.level == libmpi.Multiple && p.quirks.Has(mpiquirks.QuirkAlone) {
		p.polled = true
		libmpi.Restrict(libmpi.Serialized)
	}
	p.small = eagerBytes(os.Environ())
	p.large = libmpi.Has("MPI_Allreduce_c") && libmpi.Has("MPI_Alltoallv_c")
	p.persistent = libmpi.Has("MPI_Allreduce_init") || libmpi.Has("MPIX_Allreduce_init")
	p.types.init()
	p.ops.init(p.quirks)
	p.sound = newSound(p.quirks)
	c := &comm{p: p, rank: rank, size: size, isWorld: true, world: make([]int, size)}
	p.world = c
	for r := range c.world {
		c.world[r] = r
	}
	for _, made := range []*libmpi.Comm{&c.data, &c.ctl, &p.parent} {
		if *made, code = world.Dup(); code != 0 {
			return nil, initFault("MPI_Comm_dup: %v", libmpi.Error(code))
		}
	}
	if err := p.agree(c, cfg); err != nil {
		return nil, err
	}
	p.caps = p.describe()
	p.caps.DeviceMemory, p.whyDevice = p.deviceMemory(cfg.Settings.CUDA, libmpi.CUDA(), surroundings{os.LookupEnv, inProcess})
	p.direct = p.deviceColls()
	p.addProcessor()
	c.begin()
	return c, nil
}

// agree finds out which features any rank was asked for, which ranks share a node, and the names of
// the nodes.
func (p *process) agree(c *comm, cfg Config) error {
	mine := []byte{bit(cfg.Check), bit(cfg.Deterministic), bit(cfg.Bounded), bit(p.polled), byte(math.MaxUint8 - min(p.small, smallBytes)/16),
		bit(!p.owned), bit(p.level < libmpi.Serialized)}
	all := make([]byte, len(mine))
	max := c.p.ops.predefined[backend.OpMax]
	if code := c.data.Allreduce(mine, all, len(mine), p.types.kinds[backend.Uint8], max); code != 0 {
		return initFault("the first MPI_Allreduce: %v", libmpi.Error(code))
	}
	p.checked, p.deterministic, p.polled = all[0] != 0, all[1] != 0, all[3] != 0
	p.bounded = all[2] != 0
	p.agreed = p.checked || p.bounded
	p.small = (math.MaxUint8 - int(all[4])) * 16
	p.drains = all[5] == 0
	p.oneThread = all[6] != 0
	node, code := c.data.Shared()
	if code != 0 {
		return initFault("MPI_Comm_split_type: %v", libmpi.Error(code))
	}
	defer node.Free()
	// The lowest rank of each node is the node's number, until they are counted.
	lowest := binary.LittleEndian.AppendUint64(nil, uint64(c.rank))
	if code = node.Collective(&libmpi.Coll{Coll: int(backend.Bcast), Recv: lowest, Count: 8, Type: p.types.kinds[backend.Uint8], Size: c.size}); code != 0 {
		return initFault("MPI_Bcast: %v", libmpi.Error(code))
	}
	record := nodeRecord(lowest, p.hosts[0])
	every := make([]byte, len(record)*c.size)
	if code = c.data.Collective(&libmpi.Coll{Coll: int(backend.Allgather), Send: record, Recv: every, Count: len(record),
		Type: p.types.kinds[backend.Uint8], Size: c.size}); code != 0 {
		return initFault("MPI_Allgather: %v", libmpi.Error(code))
	}
	p.nodes, p.hosts = readNodes(every)
	return nil
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (p *process) describe() backend.Caps {
	large, persistent := "derived types and schedules", "schedules"
	if p.large {
		large = "native"
	}
	if p.persistent {
		persistent = "native"
	}
	return backend.Caps{
		Backend: "mpi", Library: p.lib.Name(), Standard: "MPI " + p.lib.Version, Processes: true, Deterministic: p.deterministic, NativeColl: true,
		MaxTag: min(p.maxTag, backend.MaxTag), Checked: p.checked, ThreadLevel: p.level.String(),
		LargeCounts: large, Persistent: persistent, SharedMemory: true, // every library has MPI_Win_allocate_shared
	}
}

// finalize ends MPI in the world's Close. It waits for all ranks.
func (p *process) finalize(c *comm) error {
	p.engine.shutAll()
	if f := p.failed.Load(); f != nil {
		return p.closeFailed(f)
	}
	p.departs()
	// A call that another goroutine was about to make has been made by then. One that waits for a
	// message or for other ranks may never end.
	end := time.Now().Add(leaveFor)
	free := libmpi.MayCall() && p.engine.left(c, end)
	if f := p.failed.Load(); f != nil {
		return p.closeFailed(f)
	}
	if free {
		p.settle()
	}
	why, within := p.mayNotEnd(c), leaveFor
	if p.drains && free {
		until := time.Time{} // like MPI_Finalize, until all ranks have called it
		if why != "" {
			until = end
		}
		if !p.drain(c, until) {
			within = max(time.Until(end).Round(leaveFor/10), leaveFor/10) // the rest of that time
		}
		if f := p.failed.Load(); f != nil {
			return p.closeFailed(f)
		}
		why = p.mayNotEnd(c)
	}
	p.sampler.stop()
	p.engine.stop()
	if free && !p.engine.leaked() && !p.engine.any(func(*op) bool { return true }) && c.broken.Load() == nil {
		if p.drains { // else messages may be on their way
			c.data.Free()
			c.ctl.Free()
			p.parent.Free()
		}
		p.types.free()
		p.ops.free()
	}
	return p.leave(why, free, within)
}

// mayNotEnd returns why MPI_Finalize may never return, and the empty string if it will.
func (p *process) mayNotEnd(world *comm) string {
	switch s := world.broken.Load(); {
	case p.engine.owed():
		return owing
	case s != nil:
		return "the world was broken: " + s.Error()
	case p.engine.wins.Load() > 0:
		return "a window is not freed, and other ranks may be waiting for that"
	}
	return ""
}

const owing = "a message of an abandoned send has not been received"

// settle gives abandoned operations a moment to complete, and retired communicators to be freed.
func (p *process) settle() {
	e := &p.engine
	for end := time.Now().Add(backend.Grace); time.Now().Before(end); yield() {
		e.tend()
		e.mu.Lock()
		n := len(e.reqs) + len(e.retired)
		e.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// leave finalizes MPI if cohort initialized it and no call is in the library (free). If a reason
// why it may never end is given, leave waits for it no longer than within.
func (p *process) leave(why string, free bool, within time.Duration) error {
	if !p.owned && (free || !libmpi.MayCall()) {
		return nil
	}
	if !libmpi.MayCall() {
		return libmpi.Error(libmpi.Thread)
	}
	inside := ""
	switch {
	case p.engine.stuck.Load() > 0:
		inside = "an abandoned blocking call is still in the library"
	case !free:
		inside = "a blocking call of another goroutine is still in the library; use a handle of WithContext, whose receives and probes end"
	case why == owing && p.drains && p.quirks.Has(mpiquirks.QuirkOwed):
		inside = why
	}
	if inside != "" && !p.owned {
		return &backend.Fault{Sentinel: backend.ErrBroken, Text: inside}
	}
	p.owned = false
	defer p.thread.end()
	if inside != "" {
		return &backend.Fault{Sentinel: backend.ErrBroken, Text: "MPI is not finalized: " + inside + "; the launcher may report this process as failed"}
	}
	var code libmpi.Code
	if p.thread == nil {
		code = p.end()
		runtime.UnlockOSThread()
	} else {
		done := make(chan libmpi.Code, 1)
		p.thread.work <- func() { done <- p.end() }
		var late <-chan time.Time
		if why != "" {
			late = time.After(within)
		}
		select {
		case code = <-done:
		case <-late:
			return backend.Faultf(backend.ErrBroken, "MPI_Finalize has not returned after %v, and may never: %s; "+
				"the launcher may report this process as failed", within, why)
		}
	}
	if code != 0 {
		return libmpi.Error(code)
	}
	return nil
}

// end calls MPI_Finalize, and then what the library registered for the end of the process.
func (p *process) end() libmpi.Code {
	var code libmpi.Code
	ended := false
	end := func() {
		if p.drains && p.quirks.Has(mpiquirks.QuirkDisconnect) { // MPI_Finalize waits for all ranks anyway
			_ = libmpi.World().Collective(&libmpi.Coll{Coll: int(backend.Barrier), Size: p.world.size})
		}
		code, ended = libmpi.Finalize(), true
	}
	if run := p.ending.Load(); run != nil {
		_ = (*run)(end) // the device may have failed, which matters to those who use it
	}
	if !ended {
		end()
	}
	if code == 0 && p.quirks.Has(mpiquirks.QuirkExit) {
		libmpi.End()
	}
	return code
}

// leaveFor is how long MPI_Finalize, and the rounds of drain, may take where they may never end:
// both wait for the other ranks, one of which may have stopped.
const leaveFor = 5 * time.Second
