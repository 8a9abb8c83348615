//go:build linux || darwin

package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// join makes this process a rank of its job, and connects it to the others.
//
//  0. Where the launcher has a key-value space, learn there where the coordinator listens.
//  1. Listen, so that the address is known.
//  2. Join at the coordinator; rank 0 listens there too, unless the launcher does.
//  3. Connect: of two ranks the higher one dials. If connections are made on demand, only those with
//     rank 0 are made here, and the listener stays open for the others.
func join(ctx context.Context, cfg Config) (world backend.Comm, err error) {
	// Without this check a lack of descriptors would show on some ranks only, in the middle of the
	// rendezvous or, with connections on demand, of the program. A connection takes two descriptors while
	// it leaves the runtime's poller; rank 0, as the coordinator, has one more to each rank. The rest are
	// for the listener, the poller, and shared memory.
	files := 2*(cfg.Size-1) + 6
	if !cfg.Launcher {
		files = 3*(cfg.Size-1) + 6 // on all ranks, so that all of them say so
	}
	if err := shmem.Files(files, fmt.Sprintf("a job of %d ranks", cfg.Size)); err != nil {
		return nil, err
	}
	id := &meet.Identity{Job: cfg.Job, Rank: cfg.Rank, Size: cfg.Size, Replaced: cfg.Replaced,
		First: meet.First{Job: cfg.FirstJob, Ranks: cfg.FirstRanks}}
	if cfg.SecretFile != "" || cfg.Secret != "" {
		if id.Secret, err = cfg.readSecret(); err != nil {
			return nil, err
		}
	}
	if id.TLS, err = meet.LoadTLS(cfg.TLSCert, cfg.TLSKey, cfg.TLSCA, cfg.TLSName); err != nil {
		return nil, err
	}
	first, last, err := meet.ParsePorts(cfg.Ports)
	if err != nil {
		return nil, err
	}
	var invited *invitation // nil: the settings name the coordinator
	if cfg.Coordinator == "" {
		if invited, err = invite(ctx, cfg, id, first, last); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil && invited.l != nil {
				invited.l.Close()
			}
		}()
		cfg.Coordinator = invited.at[0].String()
	}
	addrs, err := meet.ListenAddrs(cfg.Interface, cfg.Coordinator)
	if err != nil {
		return nil, err
	}
	l, err := cfg.listen(meet.ListenConfig{Addrs: addrs, PortMin: first, PortMax: last, Identity: id})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil || !cfg.onDemand() {
			l.Close()
		}
	}()
	wake := ""
	if shmem.Supported && !cfg.Sockets {
		wake = fmt.Sprintf("@cohort-wake/%d/%s", os.Geteuid(), rand.Text())
	}
	sleep, err := newSleeper(wake)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			sleep.Close()
		}
	}()
	self := meet.Member{Rank: cfg.Rank, Process: os.Getpid(), Node: meet.ThisNode(), Addrs: l.Addrs(), OnDemand: cfg.onDemand()}
	if cfg.Worlds != nil {
		self.Worlds = *cfg.Worlds
	}
	if sleep.wake != nil {
		self.Wake = sleep.wake.name
	}
	self.CPUs, _ = shmem.CPUs() // none if they are not known
	if name, err := os.Hostname(); err == nil {
		self.Host = meet.HostName(name)
	}
	var meeting *meet.Meeting
	switch {
	case invited == nil && cfg.Launcher:
		meeting, err = meet.Join(ctx, id, cfg.Coordinator, meet.Launcher, self)
	case invited == nil:
		meeting, err = meet.Join(ctx, id, cfg.Coordinator, 0, self)
	case invited.l != nil:
		meeting, err = meet.Lead(ctx, invited.l, self)
	default:
		meeting, err = meet.JoinAt(ctx, id, invited.at, 0, self)
	}
	if err != nil {
		return nil, err
	}
	c := &connecting{cfg: cfg, id: id, l: l, members: meeting.Members}
	worlds := 0
	for r := range c.members {
		worlds = max(worlds, c.members[r].Worlds)
	}
	var cpus [][16]uint64
	for r := range c.members {
		if r == cfg.Rank || c.members[r].Shares(c.self()) {
			cpus = append(cpus, c.members[r].CPUs)
		}
	}
	c.spare = node.Spare(cpus)
	var links []engine.Link
	err = meeting.Confirm(ctx, func(ctx context.Context) (err error) {
		for r := range c.members {
			if c.members[r].OnDemand != self.OnDemand {
				return backend.Faultf(backend.ErrInit, "ranks %d and %d have different values of COHORT_TCP_CONNECT; give all ranks the same", cfg.Rank, r)
			}
		}
		if err = c.meet(ctx, sleep); err != nil {
			return err
		}
		if links, err = c.all(ctx); err != nil {
			if refused := l.Report(); refused != "" {
				err = fmt.Errorf("%w (%s)", err, refused)
			}
		}
		return err
	})
	if err != nil {
		closeAll(links)
		if c.node != nil {
			c.node.Close()
		}
		if worlds > 0 {
			err = unconnected{err}
		}
		return nil, err
	}
	if cfg.Worlds != nil {
		*cfg.Worlds = worlds
	}
	return c.start(links, sleep, meeting)
}

// listen is meet.Listen, whose error says what Rejoin needs.
func (cfg *Config) listen(c meet.ListenConfig) (*meet.Listener, error) {
	l, err := meet.Listen(c)
	if errors.Is(err, syscall.EADDRINUSE) && cfg.onDemand() {
		err = fmt.Errorf("%w (Rejoin with COHORT_TCP_CONNECT=demand needs two ports for each rank, in COHORT_TCP_PORTS)", err)
	}
	return l, err
}

// readSecret reads the job's secret.
func (cfg *Config) readSecret() (meet.Secret, error) {
	if cfg.SecretFile != "" {
		return meet.ReadSecretFile(cfg.SecretFile)
	}
	s, err := meet.ReadSecret(strings.NewReader(cfg.Secret))
	if err != nil {
		err = fmt.Errorf("%w (COHORT_SECRET)", err)
	}
	return s, err
}

// start starts the engine of a rank that is connected.
func (c *connecting) start(links []engine.Link, sleep *sleeper, meeting *meet.Meeting) (backend.Comm, error) {
	whole := c.node != nil && len(c.node.PIDs) == len(c.members) // all ranks share memory
	config := engine.Config{
		Rank: c.id.Rank, Peers: make([]engine.Peer, len(c.members)), Heartbeat: c.cfg.Heartbeat, Sleeper: sleep, Spare: c.spare,
		Caps: backend.Caps{Backend: "tcp", Processes: true, SharedMemory: shmem.Supported, Deterministic: true, NativeColl: whole,
			MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"},
	}
	lowest := map[string]int{} // rank of each node
	for r := range c.members {
		m := &c.members[r]
		if _, ok := lowest[m.Node]; !ok || m.Node == "" { // "": alone there
			lowest[m.Node] = r
		}
		config.Peers[r] = engine.Peer{Host: m.Host, PID: m.Process, Node: lowest[m.Node], Local: c.local[r]}
	}
	if shmem.Supported {
		config.Runs = shmem.Runs
	}
	if c.node != nil {
		config.Board, config.Left = c.node.Board(), c.node.Leave
	}
	if whole {
		config.Yield = shmem.Yield
	}
	if c.cfg.onDemand() {
		config.Dialer = &dialer{c: c}
	}
	config.Diagnostics = func(open, hub int) []string {
		list := []string{c.sharing()}
		if c.id.TLS != nil {
			list = append(list, "TLS 1.3 with certificates, to all ranks without shared memory")
		}
		if c.cfg.onDemand() {
			list = append(list, fmt.Sprintf("connections: made on demand (COHORT_TCP_CONNECT), now with %d of the %d other ranks; rank %d forwards notices",
				open, len(c.members)-1, hub))
		}
		for _, l := range []*meet.Listener{c.l, meeting.Coordinator} {
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
