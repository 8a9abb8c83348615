package tcp

import (
	"fmt"
	"math/bits"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// start starts the engine of a rank that is connected.
func (c *connecting) start(cfg Config, links []engine.Link, sleep *sleeper, self wire.Member, door *wire.Listener) (backend.Comm, error) {
	config := engine.Config{
		Rank: cfg.Rank, Peers: make([]engine.Peer, len(c.members)), Heartbeat: cfg.Heartbeat, Sleeper: sleep, Spare: c.spare,
		Caps: backend.Caps{Backend: "tcp", Processes: true, SharedMemory: shmem.Supported, Deterministic: true,
			MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"},
	}
	for r := range c.members {
		config.Peers[r] = engine.Peer{Host: c.members[r].Host, PID: c.members[r].Process, Node: nodeOf(c.members, r)}
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
		for _, l := range []*wire.Listener{c.l, door} {
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
	return e.Start()
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
	ranks, all := 0, make([]byte, len(self.Info))
	for i := range members {
		m := &members[i]
		if m.Rank != self.Rank && !m.Shares(self) {
			continue
		}
		ranks++
		for k := 1; k < min(len(all), len(m.Info)); k++ {
			all[k] |= m.Info[k]
		}
	}
	n := 0
	for _, b := range all {
		n += bits.OnesCount8(b)
	}
	return n >= ranks
}
