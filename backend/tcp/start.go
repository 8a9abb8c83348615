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
//  1. Read the secret and the certificate.
//  2. Listen. Where the launcher has a key-value space, rank 0 tells the others there where it listens as the coordinator.
//  3. Meet the other ranks at the coordinator, which is rank 0 unless it is the launcher.
//  4. Connect: of two ranks the higher one dials. If connections are made on demand, only those with
//     rank 0 are made here, and the listener stays open for the others.
//  5. Start the engine.
func join(ctx context.Context, cfg Config) (world backend.Comm, err error) {
	if err = cfg.checkFiles(); err != nil {
		return nil, err
	}
	c := &connecting{cfg: cfg}
	defer func() { c.release(err == nil) }()
	if c.id, err = cfg.identity(); err != nil {
		return nil, err
	}
	if err = c.listen(ctx); err != nil {
		return nil, err
	}
	meeting, err := c.meetOthers(ctx)
	if err != nil {
		return nil, err
	}
	links, err := c.connectAll(ctx, meeting)
	if err != nil {
		return nil, err
	}
	return c.start(links, meeting)
}

// release closes what a rank that has started does not need, or all that a failed start has opened.
func (c *connecting) release(started bool) {
	if c.l != nil && !(started && c.cfg.onDemand()) {
		c.l.Close()
	}
	if started {
		return
	}
	if c.sleep != nil {
		c.sleep.Close()
	}
	if c.invited != nil && c.invited.l != nil { // the end of a meeting closes it too
		c.invited.l.Close()
	}
}

// checkFiles checks that the process may open enough files. Without it a lack of descriptors would show on some ranks
// only, in the middle of the rendezvous or, with connections on demand, of the program. A connection takes two
// descriptors while it leaves the runtime's poller; rank 0, as the coordinator, has one more to each rank. The rest are
// for the listener, the poller, and shared memory.
func (cfg *Config) checkFiles() error {
	files := 2*(cfg.Size-1) + 6
	if !cfg.Launcher {
		files = 3*(cfg.Size-1) + 6 // on all ranks, so that all of them say so
	}
	return shmem.Files(files, fmt.Sprintf("a job of %d ranks", cfg.Size))
}

// identity returns by what the other ranks know this one. It has no secret if rank 0 is to tell it.
func (cfg *Config) identity() (id *meet.Identity, err error) {
	id = &meet.Identity{Job: cfg.Job, Rank: cfg.Rank, Size: cfg.Size, Replaced: cfg.Worlds != nil,
		First: meet.First{Job: cfg.FirstJob, Ranks: cfg.FirstRanks}}
	if cfg.SecretFile != "" || cfg.Secret != "" {
		if id.Secret, err = cfg.readSecret(); err != nil {
			return nil, err
		}
	}
	id.TLS, err = meet.LoadTLS(cfg.TLSCert, cfg.TLSKey, cfg.TLSCA, cfg.TLSName)
	return id, err
}

// listen opens what other ranks reach this one by: the listener, and the socket by which those of the node wake it.
func (c *connecting) listen(ctx context.Context) error {
	first, last, err := meet.ParsePorts(c.cfg.Ports)
	if err != nil {
		return err
	}
	if c.cfg.Coordinator == "" {
		if c.invited, err = invite(ctx, c.cfg, c.id, first, last); err != nil {
			return err
		}
		c.cfg.Coordinator = c.invited.at[0].String()
	}
	addrs, err := meet.ListenAddrs(c.cfg.Interface, c.cfg.Coordinator)
	if err != nil {
		return err
	}
	c.accepts = *c.id
	if c.cfg.Worlds != nil {
		c.accepts.Listener = rand.Text() // the next attempt may be at the same port
	}
	if c.l, err = c.cfg.listen(meet.ListenConfig{Addrs: addrs, PortMin: first, PortMax: last, Identity: &c.accepts}); err != nil {
		return err
	}
	wake := ""
	if shmem.Supported && !c.cfg.Sockets {
		wake = fmt.Sprintf("@cohort-wake/%d/%s", os.Geteuid(), rand.Text())
	}
	c.sleep, err = newSleeper(wake)
	return err
}

// meetOthers joins the others at the coordinator, and returns when all ranks have joined.
func (c *connecting) meetOthers(ctx context.Context) (meeting *meet.Meeting, err error) {
	self := meet.Member{Rank: c.id.Rank, Process: os.Getpid(), Node: meet.ThisNode(), Addrs: c.l.Addrs(), Listener: c.accepts.Listener, OnDemand: c.cfg.onDemand()}
	if c.cfg.Worlds != nil {
		self.Worlds = *c.cfg.Worlds
	}
	if c.sleep.wake != nil {
		self.Wake = c.sleep.wake.name
	}
	self.CPUs, _ = shmem.CPUs() // none if they are not known
	if name, err := os.Hostname(); err == nil {
		self.Host = meet.HostName(name)
	}
	switch {
	case c.invited == nil && c.cfg.Launcher:
		meeting, err = meet.Join(ctx, c.id, c.cfg.Coordinator, meet.Launcher, self)
	case c.invited == nil:
		meeting, err = meet.Join(ctx, c.id, c.cfg.Coordinator, 0, self)
	case c.invited.l != nil:
		meeting, err = meet.Lead(ctx, c.invited.l, self)
	default:
		meeting, err = meet.JoinAt(ctx, c.id, c.invited.at, 0, self)
	}
	if err != nil {
		return nil, err
	}
	c.members = meeting.Members
	var cpus [][16]uint64
	for r := range c.members {
		if r == c.id.Rank || c.members[r].Shares(c.self()) {
			cpus = append(cpus, c.members[r].CPUs)
		}
	}
	c.spare = node.Spare(cpus)
	return meeting, nil
}

// connectAll makes the connections of the start, and returns when all ranks have made theirs.
func (c *connecting) connectAll(ctx context.Context, meeting *meet.Meeting) (links []engine.Link, err error) {
	worlds := 0
	for r := range c.members {
		worlds = max(worlds, c.members[r].Worlds)
	}
	err = meeting.Confirm(ctx, func(ctx context.Context) (err error) {
		for r := range c.members {
			if c.members[r].OnDemand != c.self().OnDemand {
				return backend.Faultf(backend.ErrInit, "ranks %d and %d have different values of COHORT_TCP_CONNECT; give all ranks the same", c.id.Rank, r)
			}
		}
		if err = c.meet(ctx); err != nil {
			return err
		}
		if links, err = c.all(ctx); err != nil {
			if refused := c.l.Report(); refused != "" {
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
	if c.cfg.Worlds != nil {
		*c.cfg.Worlds = worlds
	}
	return links, nil
}

// listen is meet.Listen, whose error says what Rejoin needs.
func (cfg *Config) listen(c meet.ListenConfig) (*meet.Listener, error) {
	l, err := meet.Listen(c)
	switch {
	case !errors.Is(err, syscall.EADDRINUSE):
	case cfg.Met != "" && cfg.Rank == 0 && !cfg.onDemand():
		err = fmt.Errorf("%w (Rejoin needs one port more for rank 0, which any rank may become, in COHORT_TCP_PORTS)", err)
	case cfg.onDemand():
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
func (c *connecting) start(links []engine.Link, meeting *meet.Meeting) (backend.Comm, error) {
	whole := c.node != nil && len(c.node.PIDs) == len(c.members) // all ranks share memory
	config := engine.Config{
		Rank: c.id.Rank, Peers: make([]engine.Peer, len(c.members)), Heartbeat: c.cfg.Heartbeat, Sleeper: c.sleep, Spare: c.spare,
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
	if err != nil && c.cfg.Worlds != nil && *c.cfg.Worlds > 0 {
		err = unconnected{err} // the others have the world, and have lost this rank there
	}
	if c.node != nil {
		runtime.AddCleanup(e, (*node.Node).Close, c.node) // a goroutine that the program left in an operation must not fault
	}
	return world, err
}
