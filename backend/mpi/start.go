//go:build cgo && linux

package mpi

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"runtime"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

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
		p.ending.foreign, p.lib.level = true, level
	case asked < libmpi.Serialized:
		runtime.LockOSThread()
		if p.lib.level, code = libmpi.Init(asked); code != 0 {
			return initFault("MPI_Init_thread: %v", libmpi.Error(code))
		}
	default:
		thread := newThread()
		p.ending.thread = thread
		err := within(ctx, "MPI_Init_thread has not returned", func() error {
			thread.do(func() { p.lib.level, code = libmpi.Init(asked) })
			if code != 0 {
				thread.end()
				return initFault("MPI_Init_thread: %v", libmpi.Error(code))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	p.lib.level = min(p.lib.level, asked)
	if p.lib.level < asked {
		p.exit(leaving{})
		return initFault("thread level: %s grants %v, and %v was requested; set COHORT_MPI_THREAD=%[2]v if that will do, "+
			"or use another library", p.lib.Name(), p.lib.level, asked)
	}
	if initialized && p.lib.level < libmpi.Serialized {
		runtime.LockOSThread()
		libmpi.Adopt()
	}
	libmpi.Restrict(p.lib.level)
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
	p.survey(maxTag)
	p.job.polled = p.lib.level == libmpi.Serialized
	if size == 1 && p.lib.level == libmpi.Multiple && p.lib.quirks.Has(mpiquirks.QuirkAlone) {
		p.job.polled = true
		libmpi.Restrict(libmpi.Serialized)
	}
	if p.lib.level >= libmpi.Serialized {
		p.engine.poller.Store(pollerIdle)
	}
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
	if err := p.locate(c); err != nil {
		return nil, err
	}
	p.caps = p.describe()
	p.caps.DeviceMemory, p.device.why = p.deviceMemory(cfg.Settings.CUDA, libmpi.CUDA(), surroundings{os.LookupEnv, inProcess})
	p.device.colls = p.deviceColls()
	p.addProcessor()
	c.begin()
	return c, nil
}

// survey finds out what the library can do, and its handles of types and operations.
func (p *process) survey(maxTag int) {
	p.lib.maxTag, p.tags = maxTag, newTags(maxTag)
	p.lib.guard = p.lib.quirks.Has(mpiquirks.QuirkOverrun)
	p.lib.large = libmpi.Has("MPI_Allreduce_c") && libmpi.Has("MPI_Alltoallv_c")
	p.lib.persistent = libmpi.Has("MPI_Allreduce_init") || libmpi.Has("MPIX_Allreduce_init")
	p.lib.colls = newUsableColls(p.lib.quirks)
	p.types.init()
	p.ops.init(p.lib.quirks)
}

// agree finds out what any rank was asked for or needs. Each rank gives a record of bytes, and all get the largest of each.
func (p *process) agree(c *comm, cfg Config) error {
	const unit = 16 // bytes: a rank says in these how many fit into eager messages, and the fewest count
	mine := []byte{byte(cfg.agreement()), bit(cfg.Deterministic), bit(p.lib.level < libmpi.Serialized), bit(p.job.polled),
		bit(p.ending.foreign), bit(p.lib.guard && isTuned(os.Environ())), byte(math.MaxUint8 - eagerBytes(os.Environ())/unit)}
	all := make([]byte, len(mine))
	max := p.ops.predefined[backend.OpMax]
	if code := c.data.Allreduce(mine, all, len(mine), p.types.kinds[backend.Uint8], max); code != 0 {
		return initFault("the first MPI_Allreduce: %v", libmpi.Error(code))
	}
	p.job.agreement, p.job.deterministic, p.job.oneThread, p.job.polled = agreement(all[0]), all[1] != 0, all[2] != 0, all[3] != 0
	p.job.drains, p.job.tuned, p.job.small = all[4] == 0, all[5] != 0, (math.MaxUint8-int(all[6]))*unit
	if p.job.tuned { // perhaps by han, with which these crash
		clear(p.lib.colls[backend.Reduce].inPlace[:])
		clear(p.lib.colls[backend.Allreduce].inPlace[:])
	}
	return nil
}

// locate finds out which ranks share a node, and the names of the nodes.
func (p *process) locate(c *comm) error {
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
	record := nodeRecord(lowest, p.job.hosts[0])
	every := make([]byte, len(record)*c.size)
	if code = c.data.Collective(&libmpi.Coll{Coll: int(backend.Allgather), Send: record, Recv: every, Count: len(record),
		Type: p.types.kinds[backend.Uint8], Size: c.size}); code != 0 {
		return initFault("MPI_Allgather: %v", libmpi.Error(code))
	}
	p.job.nodes, p.job.hosts = readNodes(every)
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
	if p.lib.large {
		large = "native"
	}
	if p.lib.persistent {
		persistent = "native"
	}
	return backend.Caps{
		Backend: "mpi", Library: p.lib.Name(), Standard: "MPI " + p.lib.Version, Processes: true, Deterministic: p.job.deterministic, NativeColl: true,
		MaxTag: min(p.lib.maxTag, backend.MaxTag), Checked: p.job.checked(), ThreadLevel: p.lib.level.String(),
		LargeCounts: large, Persistent: persistent, SharedMemory: true, // every library has MPI_Win_allocate_shared
	}
}
