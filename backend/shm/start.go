package shm

import (
	"math/bits"
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/board"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// start starts the engine of a rank that has joined.
func start(seg *shmem.Segment, cfg Config) (backend.Comm, error) {
	l := newLayout(cfg.Size)
	area := make([]*rankArea, l.n)
	pids, others := make([]int, l.n), map[int]int{}
	for r := range l.n {
		area[r] = shmem.At[rankArea](seg, l.ranks+r*rankAreaSize)
		if pids[r] = int(area[r].pid.Load()); r != cfg.Rank {
			others[r] = pids[r]
		}
	}
	copies, spare := shmem.At[control](seg, 0).noCMA.Load() == 0, coresToSpare(area)
	wake := func(rank int) {
		if a := area[rank]; a.sleeping.Load() != 0 {
			a.bell.Add(1)
			shmem.FutexWake(&a.bell, 1)
		}
	}
	config := engine.Config{
		Rank: cfg.Rank, Peers: make([]engine.Peer, l.n), Heartbeat: cfg.heartbeat(),
		Sleeper: &sleeper{area: area[cfg.Rank]}, Spare: spare, Yield: shmem.Yield,
		Board: board.New(board.Config{Segment: seg, Offset: l.board, Rank: cfg.Rank, PIDs: pids, Copies: copies, Spare: spare, Wake: wake}),
		Caps: backend.Caps{Backend: "shm", Processes: true, SharedMemory: true, Deterministic: true, NativeColl: true, SingleCopy: copies,
			MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"},
	}
	var watch *shmem.Watch
	config.Left = func() {
		if watch != nil {
			watch.Close()
		}
	}
	for r := range l.n {
		config.Peers[r] = engine.Peer{PID: pids[r], Local: r}
	}
	e := engine.New(config)
	links := make([]*link, l.n)
	for r := range l.n {
		if r == cfg.Rank {
			continue
		}
		links[r] = &link{memlink.New(memlink.Config{
			Segment: seg, Out: l.direction(cfg.Rank, r), In: l.direction(r, cfg.Rank), Data: l.data,
			PID: pids[r], Copies: copies, Spare: spare,
			Bell: func() { wake(r) }, Kill: func() { watch.Kill(r) },
		})}
		e.Connect(r, links[r])
	}
	world, err := e.Start()
	if err != nil {
		seg.Close()
		return nil, err
	}
	if l.n > 1 {
		watch, err = shmem.NewWatch(others, func(rank int) {
			links[rank].Ended(nil)
			e.Poke()
		})
		if err != nil {
			world.Close()
			return nil, initFault("rank %d: %v", cfg.Rank, err)
		}
	}
	seg.CloseFD()
	// The mapping lives as long as anything can use it: a goroutine that the program left in an operation
	// must not fault.
	runtime.AddCleanup(e, func(s *shmem.Segment) { s.Close() }, seg)
	return world, nil
}

// heartbeat returns Config.Heartbeat for the engine.
func (cfg Config) heartbeat() time.Duration {
	if cfg.Heartbeat > 0 {
		return max(cfg.Heartbeat, engine.HeartbeatMin)
	}
	return cfg.Heartbeat
}

// coresToSpare reports whether the ranks together may use at least as many processors as there are ranks.
func coresToSpare(area []*rankArea) bool {
	var all [16]uint64
	for _, a := range area {
		for i := range all {
			all[i] |= a.cpus[i]
		}
	}
	n := 0
	for _, w := range all {
		n += bits.OnesCount64(w)
	}
	return n >= len(area)
}
