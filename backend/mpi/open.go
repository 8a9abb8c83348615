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
	"github.com/cohort-hpc/cohort/topo"
)

// Config says how to join an MPI job.
type Config struct {
	Library       string // path of the library, empty to search
	Check         bool   // find mismatched collectives
	Deterministic bool   // the order of reductions that the other backends have
	Bounded       bool   // operations can end early, by a deadline or because a context is canceled

	// LowerThreadLevel accepts a library that grants a lower thread level than Settings asks for. Init then
	// calls MPI_Init_thread on the caller's thread, where a deadline does not end it.
	LowerThreadLevel bool

	Settings Settings
}

// opened makes sure that a process joins once: MPI cannot be initialised again.
var opened struct {
	sync.Mutex
	before bool
}

func initFault(format string, args ...any) error {
	return &backend.Fault{Sentinel: backend.ErrInit, Text: fmt.Sprintf(format, args...)}
}

// Open joins the job that an MPI launcher started this process in, and returns
// its first communicator. All processes of the job call it, once.
func Open(ctx context.Context, cfg Config) (backend.Comm, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.before {
		return nil, initFault("this process has joined a job before: MPI can be initialised once, and not again after it was finalized")
	}
	level, err := levelOf(cfg.Settings.ThreadLevel)
	if err != nil {
		return nil, err
	}
	p := &process{owned: true}
	launcher := mpifind.Launched(os.LookupEnv)
	job := topo.ThisJob()
	if node, err := topo.Here(); err == nil { // what is not known is taken to be in order
		cfg.Settings.Oversubscribed = cfg.Settings.Oversubscribed || oversubscribed(job, node)
	}
	own, _ := os.Hostname()
	p.hosts = []string{job.HostName(own)}
	if err := p.load(cfg); err != nil {
		return nil, err
	}
	opened.before = true
	if err := p.initialise(ctx, level, cfg.LowerThreadLevel); err != nil {
		return nil, err
	}
	if err := p.alone(launcher); err != nil {
		p.leave("", true, leaveFor)
		return nil, err
	}
	// After another failure MPI is not finalized: the other ranks may not come.
	var c *comm
	if p.thread == nil { // nobody else may call
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

// within calls f and returns what it does, or an error when ctx ends before.
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
		return &backend.Fault{Sentinel: backend.ErrInit, Text: fmt.Sprintf("%s: %v; are all processes of the job there?", late, context.Cause(ctx))}
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
	return 0, initFault("thread level %q: allowed are single, funneled, serialized and multiple", name)
}

// readers are the files of those libraries below MPI's that read a variable as soon as they are
// loaded, which a tool may have had done before. Others are read when MPI is initialised.
var readers = map[string]string{"UCX_HANDLE_ERRORS": "libucs.", "UCX_DEBUG_SIGNO": "libucs.", "IPATH_NO_BACKTRACE": "libinfinipath."}

// load finds and loads the library, with what it is to be told in the environment.
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
		family := familyName(l.Family)
		settings, err := cfg.Settings.environment(family, l.Vendor, l.Version, os.LookupEnv)
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
			p.lib, p.settings, p.asks = lib, settings, cfg.Settings
			p.unprofiled = cfg.Settings.Profiling && !slices.ContainsFunc(settings, func(s Setting) bool { return s.Why == whyProfile })
			// The file's name may say less than the library itself.
			vendor, version := identify(lib.Text)
			if vendor == "" {
				vendor, version = l.Vendor, l.Version
			}
			r := parseRelease(version)
			p.maker = makerOf(familyName(mpifind.Family(lib.ABI)), vendor, r)
			p.quirks = quirksIn(p.maker, r)
			return nil
		}
		failed = append(failed, fmt.Sprintf("%v: %v", l, err))
	}
	return initFault("no MPI library can be loaded: %s", strings.Join(failed, "; "))
}

// initialise initialises MPI on a thread of its own, or on the caller's where the level may allow calls from
// no other: a level below serialized was asked for, or a lower level than asked for will do.
func (p *process) initialise(ctx context.Context, asked libmpi.Level, lower bool) error {
	p.asked = asked
	want := asked
	if want == libmpi.Multiple && !p.quirks.multiple() {
		want = libmpi.Serialized
	}
	initialized, finalized, level, code := libmpi.State()
	switch {
	case code != 0:
		return initFault("MPI_Initialized: %v", libmpi.Error(code))
	case finalized:
		return initFault("MPI was finalized in this process already")
	case initialized: // by other code, which finalizes it too
		p.owned, p.level = false, level
	case asked < libmpi.Serialized || lower:
		runtime.LockOSThread()
		if p.level, _, code = libmpi.Init(want); code != 0 {
			return initFault("MPI_Init_thread: %v", libmpi.Error(code))
		}
		if min(p.level, want) >= libmpi.Serialized {
			p.thread = newThread() // for MPI_Finalize; the caller's stays locked, since the library may have changed it
		}
	default:
		p.thread = newThread()
		err := within(ctx, "MPI_Init_thread has not returned", func() error {
			p.thread.do(func() { p.level, _, code = libmpi.Init(want) })
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
	given := p.level
	p.level = min(given, want)
	if p.level < asked && !lower {
		p.leave("", true, leaveFor)
		return p.lowerLevel(given, asked)
	}
	if initialized && p.level < libmpi.Serialized {
		runtime.LockOSThread()
		libmpi.Adopt()
	}
	// A blocking call would keep all others out.
	p.polled = p.level == libmpi.Serialized
	libmpi.Restrict(p.level)
	return nil
}

// lowerLevel is the error of a library that grants a lower thread level than was asked for.
func (p *process) lowerLevel(given, asked libmpi.Level) error {
	grants := given
	why := ""
	if given >= asked {
		grants, why = libmpi.Serialized, " (it grants multiple, with which it hangs)"
	}
	return initFault("thread level: %s grants %v%s, and %v was asked for; set COHORT_MPI_THREAD=%v or "+
		"Config.MPI.AllowLowerThreadLevel if %[2]v will do, or use another library", p.lib.Name(), grants, why, asked, grants)
}

// alone finds out that a process is a job of its own against its launcher's word.
func (p *process) alone(launcher *mpifind.Launcher) error {
	_, size, _, code := libmpi.World().Facts()
	if code != 0 || launcher == nil || launcher.Size == 1 || size > 1 {
		return nil
	}
	do := launcher.Advice(mpifind.Family(p.lib.ABI), p.lib.Path)
	return initFault("this process is one of %d started by %v, but alone to %s: %s", launcher.Size, launcher, p.lib.Name(), do)
}

// join makes the first communicator, the ranks having agreed on how they work.
func (p *process) join(cfg Config) (*comm, error) {
	world := libmpi.World()
	rank, size, maxTag, code := world.Facts()
	if code != 0 {
		return nil, initFault("MPI_COMM_WORLD: %v", libmpi.Error(code))
	}
	p.maxTag, p.folds = maxTag, newFolds(maxTag)
	p.guard, p.blind = p.quirks.overruns(), p.quirks.has(quirkNoLength)
	p.engine.minded = p.level >= libmpi.Serialized
	if size == 1 && p.level == libmpi.Multiple && p.quirks.has(quirkAlone) {
		p.polled = true
		libmpi.Restrict(libmpi.Serialized)
	}
	p.small = eagerBytes(os.Environ())
	p.large = libmpi.Has("MPI_Allreduce_c") && libmpi.Has("MPI_Alltoallv_c")
	p.persistent = libmpi.Has("MPI_Allreduce_init") || libmpi.Has("MPIX_Allreduce_init")
	p.recovers, p.whyNot = p.lib.Recovery()
	p.types.init()
	p.ops.init(p.quirks)
	p.sound = newSound(p.quirks)
	c := &comm{p: p, rank: rank, size: size, isWorld: true, world: make([]int, size)}
	p.world = c
	for r := range c.world {
		c.world[r] = r
	}
	if c.data, code = world.Dup(); code == 0 {
		c.ctl, code = world.Dup()
	}
	if code != 0 {
		return nil, initFault("MPI_Comm_dup: %v", libmpi.Error(code))
	}
	if err := p.agree(c, cfg); err != nil {
		return nil, err
	}
	p.caps = p.describe()
	p.caps.DeviceMemory, p.whyDevice = p.deviceMemory(cfg.Settings.CUDA, libmpi.CUDA(), surroundings{os.LookupEnv, inProcess})
	p.caps.DeviceColls = p.deviceColls()
	c.begin()
	return c, nil
}

// agree finds out what any rank was asked for, which ranks share a node, and what
// the nodes are called.
func (p *process) agree(c *comm, cfg Config) error {
	mine := []byte{bit(cfg.Check), bit(cfg.Deterministic), bit(cfg.Bounded), bit(p.polled), byte(math.MaxUint8 - min(p.small, smallBytes)/16),
		bit(!p.owned || p.recovers || !p.quirks.has(quirkOwed))}
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
		LargeCounts: large, Persistent: persistent, SharedMemory: true, // MPI_Win_allocate_shared, which every library has
	}
}

// finalize ends MPI with the world's Close: all ranks come, or it waits.
func (p *process) finalize(c *comm) error {
	p.engine.shutAll()
	// A call that another goroutine was about to make has been made by then; one that
	// waits for a message, or for ranks that do not come, may never end.
	end := time.Now().Add(leaveFor)
	free := libmpi.MayCall() && c.left(end) && p.engine.left(end)
	p.settle()
	why, within := p.mayNotEnd(c), leaveFor
	if p.drains && free {
		until := time.Time{} // like MPI_Finalize, until all have come
		if why != "" {
			until = end
		}
		if !p.drain(c, until) {
			within = max(time.Until(end).Round(leaveFor/10), leaveFor/10) // what is left of that time
		}
		why = p.mayNotEnd(c)
	}
	p.sampler.stop()
	p.engine.stop()
	p.engine.keep()
	if free && !p.engine.leaked() && c.broken.Load() == nil && !c.leaked.Load() {
		c.data.Free()
		c.ctl.Free()
		p.types.free()
		p.ops.free()
	}
	return p.leave(why, free, within)
}

// mayNotEnd says why MPI_Finalize may never return, empty where it will.
func (p *process) mayNotEnd(world *comm) string {
	switch s := world.broken.Load(); {
	case p.engine.owed():
		return owing
	case s != nil:
		return "the world was broken: " + s.Error()
	case p.engine.wins.Load() > 0:
		return "a window has not been freed, which other ranks may be waiting for"
	}
	return ""
}

const owing = "a message whose sending was given up has not been received"

// settle gives what was given up a moment to complete.
func (p *process) settle() {
	for end := time.Now().Add(grace); time.Now().Before(end); {
		p.engine.poll(spins)
		p.engine.mu.Lock()
		n := len(p.engine.reqs)
		p.engine.mu.Unlock()
		if n == 0 {
			return
		}
		yield()
	}
}

// leave finalizes MPI if it was initialised here, and no call is in it: free. That may
// never end if there is a reason why: then it is waited for within a time.
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
		inside = "a blocking call that was given up is still in the library"
	case !free:
		inside = "a blocking call of another goroutine is still in the library (a receive or probe of a handle of WithContext would have ended)"
	case why == owing && p.drains:
		inside = why
	}
	if inside != "" && !p.owned {
		return &backend.Fault{Sentinel: backend.ErrBroken, Text: inside}
	}
	p.owned = false
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
			return &backend.Fault{Sentinel: backend.ErrBroken, Text: fmt.Sprintf("MPI_Finalize has not returned after %v, and may never: %s; "+
				"the launcher may report this process as failed", within, why)}
		}
		p.thread.end()
	}
	if code != 0 {
		return libmpi.Error(code)
	}
	return nil
}

// end is MPI_Finalize, and what the library has left for later.
func (p *process) end() libmpi.Code {
	code := libmpi.Finalize()
	if code == 0 && p.quirks.has(quirkExit) {
		libmpi.End()
	}
	return code
}

// leaveFor is how long MPI_Finalize may take where it may never end: it waits for
// the other ranks, one of which has perhaps stopped. So do the rounds of drain.
const leaveFor = 5 * time.Second
