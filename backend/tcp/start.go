package tcp

import (
	"fmt"
	"runtime"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// start starts the engine of a rank that is connected.
func (c *connecting) start(cfg Config, links []engine.Link, sleep *sleeper, self wire.Member, listener *wire.Listener) (backend.Comm, error) {
	whole := c.node != nil && len(c.node.PIDs) == len(c.members) // all ranks share memory
	config := engine.Config{
		Rank: cfg.Rank, Peers: make([]engine.Peer, len(c.members)), Heartbeat: cfg.Heartbeat, Sleeper: sleep, Spare: c.spare,
		Caps: backend.Caps{Backend: "tcp", Processes: true, SharedMemory: shmem.Supported, Deterministic: true, NativeColl: whole,
			MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"},
	}
	for r := range c.members {
		config.Peers[r] = engine.Peer{Host: c.members[r].Host, PID: c.members[r].Process, Node: nodeOf(c.members, r), Local: c.local[r]}
	}
	if c.node != nil {
		config.Board, config.Left = c.node.Board(), c.node.Leave
	}
	if whole {
		config.Yield = shmem.Yield
	}
	var d *dialer
	if c.demand {
		d = newDialer(c)
		config.Dialer = d
	}
	config.Diagnostics = func(open, hub int) []string {
		list := c.facts(cfg, &self)
		if c.demand {
			list = append(list, fmt.Sprintf("connections: made on demand (COHORT_TCP_CONNECT), now with %d of the %d other ranks; rank %d forwards notices",
				open, len(c.members)-1, hub))
		}
		for _, l := range []*wire.Listener{c.l, listener} {
			if l == nil {
				continue
			}
			if report := l.Report(); report != "" {
				list = append(list, "unauthenticated peers: "+report)
			}
		}
		return list
	}
	e := engine.New(config)
	for r, l := range links {
		if l != nil {
			e.Connect(r, l)
		}
	}
	world, err := e.Start()
	if c.node != nil {
		runtime.AddCleanup(e, (*node.Node).Close, c.node) // a goroutine that the program left in an operation must not fault
	}
	return world, err
}

// nodeOf returns the lowest rank that a rank could share memory with.
func nodeOf(members []wire.Member, rank int) int {
	for r := range rank {
		if members[r].Shares(&members[rank]) {
			return r
		}
	}
	return rank
}

// coresToSpare reports whether the ranks of this node together may use at least as many processors
// as there are ranks.
func coresToSpare(members []wire.Member, self *wire.Member) bool {
	var cpus [][16]uint64
	for r := range members {
		if m := &members[r]; m.Rank == self.Rank || m.Shares(self) {
			cpus = append(cpus, cpusOf(m))
		}
	}
	return node.Spare(cpus)
}
