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
func (c *connecting) start(links []engine.Link, sleep *sleeper, meeting *wire.Meeting) (backend.Comm, error) {
	whole := c.node != nil && len(c.node.PIDs) == len(c.members) // all ranks share memory
	config := engine.Config{
		Rank: c.id.Rank, Peers: make([]engine.Peer, len(c.members)), Heartbeat: c.cfg.Heartbeat, Sleeper: sleep, Spare: c.spare,
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
	if c.cfg.onDemand() {
		config.Dialer = newDialer(c)
	}
	config.Diagnostics = func(open, hub int) []string {
		list := c.facts()
		if c.cfg.onDemand() {
			list = append(list, fmt.Sprintf("connections: made on demand (COHORT_TCP_CONNECT), now with %d of the %d other ranks; rank %d forwards notices",
				open, len(c.members)-1, hub))
		}
		for _, report := range []string{c.l.Report(), meeting.Report()} {
			if report != "" {
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
func (c *connecting) coresToSpare() bool {
	var cpus [][16]uint64
	for r := range c.members {
		if r == c.id.Rank || c.members[r].Shares(c.self()) {
			cpus = append(cpus, c.members[r].CPUs)
		}
	}
	return node.Spare(cpus)
}
