package shm

import (
	"fmt"
	"runtime"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// start starts the engine of a rank that has joined.
func start(n *node.Node, cfg backend.Config) (backend.Comm, error) {
	config := engine.Config{
		Rank: cfg.Rank, Peers: make([]engine.Peer, cfg.Size), Heartbeat: cfg.Heartbeat, Runs: n.Runs,
		Sleeper: sleeper{n}, Spare: n.Spare, Yield: shmem.Yield, Board: n.Board(),
		Caps: backend.Caps{Backend: "shm", Processes: true, SharedMemory: true, Deterministic: true, NativeColl: true, SingleCopy: n.Copies,
			MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"},
	}
	var watch *shmem.Watch
	var notes []string
	config.Diagnostics = func(int, int) []string { return notes }
	if !n.Copies {
		notes = append(notes, "long messages are copied twice: a rank may not read or write the memory of another (process_vm_readv)")
	}
	config.Left = func() {
		if watch != nil {
			watch.Close()
		}
		n.Leave()
	}
	others := map[int]int{}
	for r, pid := range n.PIDs {
		if config.Peers[r] = (engine.Peer{PID: pid, Local: r}); r != cfg.Rank {
			others[r] = pid
		}
	}
	e := engine.New(config)
	links := make([]*memlink.Link, cfg.Size)
	for r := range links {
		if r != cfg.Rank {
			links[r] = n.Link(r)
			e.Connect(r, links[r])
		}
	}
	world, err := e.Start()
	if err != nil {
		n.Close()
		return nil, err
	}
	// The mapping lives as long as anything can use it: a goroutine that the program left in an operation
	// must not fault.
	runtime.AddCleanup(e, (*node.Node).Close, n)
	if cfg.Size > 1 {
		watch, err = shmem.NewWatch(others, func(rank int) {
			links[rank].Ended(nil)
			e.Poke()
		})
		if err != nil {
			world.Close()
			return nil, backend.Faultf(backend.ErrInit, "rank %d: %v", cfg.Rank, err)
		}
		if watch.Polled != nil {
			notes = append(notes, fmt.Sprintf("the ends of ranks are looked for every 50 ms: %v", watch.Polled))
		}
	}
	return world, nil
}
