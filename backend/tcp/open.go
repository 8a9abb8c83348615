package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// Config describes this process's rank and how it joins its job.
type Config struct {
	Rank, Size int
	Job        string // the same on all ranks of the job

	// Coordinator is the address, HOST:PORT, to which all ranks connect at the start. Rank 0 listens
	// there; with Launcher, the process that started the ranks does, by wire.Serve.
	Coordinator string
	Launcher    bool

	// SecretFile is the path of the job's secret, with which the ranks authenticate each other.
	SecretFile string

	// Heartbeat is how long another rank may be silent before it is lost: 0 means 10 s, a negative value
	// no limit. It is the same on all ranks.
	Heartbeat time.Duration

	// JoinTimeout is how long a rank waits for the others at the start; 0 means 60 s.
	JoinTimeout time.Duration

	// Checksum makes this rank send a checksum with all data, which the receivers check.
	Checksum bool

	// Ports is the range, FIRST-LAST, of ports at which this rank may listen; empty means any free port.
	Ports string

	// TLSCert, TLSKey, and TLSCA are PEM files: this rank's certificate, its key, and the certificates of
	// the authorities that sign the ranks' certificates. Set all three or none. TLSName is the DNS name
	// that all the certificates have; empty means "cohort".
	TLSCert, TLSKey, TLSCA, TLSName string

	// Connect says when the ranks connect to each other: ConnectStart, all pairs at the start, or
	// ConnectDemand, each pair with its first message. Empty means the first for jobs of up to 64 ranks
	// and the second for larger ones. It is the same on all ranks.
	Connect string

	// Sockets turns shared memory off: ranks of one node use sockets too.
	Sockets bool

	// Interface selects the addresses at which this rank listens: names of interfaces, networks, and
	// addresses, separated by commas. Empty means the loopback interface if the coordinator is there,
	// otherwise all other interfaces.
	Interface string
}

// The values of Config.Connect.
const (
	ConnectStart  = "start"
	ConnectDemand = "demand"
)

// startMost is the size of the largest job that makes all connections at the start by default.
const startMost = 64

// onDemand reports whether the connections are made when they are first needed.
func (cfg *Config) onDemand() bool {
	return cfg.Connect == ConnectDemand || cfg.Connect == "" && cfg.Size > startMost
}

// joinTimeout is Config.JoinTimeout where that is 0.
const joinTimeout = 60 * time.Second

// Open joins the job: it returns when all ranks are connected, to each other or to rank 0, or with an error that says which are
// missing when ctx ends or the time is up.
func Open(ctx context.Context, cfg Config) (backend.Comm, error) {
	switch {
	case !supported:
		return nil, &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "backend tcp runs on Linux and macOS only"}
	case cfg.Size < 1 || cfg.Size > wire.MaxRanks:
		return nil, initFault("backend tcp takes 1 to %d ranks, not %d", wire.MaxRanks, cfg.Size)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return nil, initFault("rank %d of a job of %d ranks", cfg.Rank, cfg.Size)
	case cfg.Job == "":
		return nil, initFault("backend tcp needs a job name (COHORT_JOB), the same on all ranks")
	case cfg.Coordinator == "":
		return nil, initFault("backend tcp needs the coordinator's address (COHORT_TCP_COORDINATOR, HOST:PORT)")
	case cfg.Heartbeat > 0 && cfg.Heartbeat < engine.HeartbeatMin:
		return nil, initFault("heartbeat of %v: want %v or more, or off", cfg.Heartbeat, engine.HeartbeatMin)
	case cfg.Connect != "" && cfg.Connect != ConnectStart && cfg.Connect != ConnectDemand:
		return nil, initFault("COHORT_TCP_CONNECT is %q: want start or demand", cfg.Connect)
	case cfg.SecretFile == "":
		return nil, initFault("backend tcp needs the file with the job's secret (COHORT_SECRET_FILE)")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.JoinTimeout, joinTimeout))
	defer cancel()
	e, err := join(ctx, cfg)
	if err != nil {
		var f *backend.Fault
		if errors.As(err, &f) {
			return nil, err
		}
		return nil, initFault("rank %d of %d, backend tcp: %v", cfg.Rank, cfg.Size, err)
	}
	return e, nil
}

func initFault(format string, args ...any) error {
	return &backend.Fault{Sentinel: backend.ErrInit, Text: fmt.Sprintf(format, args...)}
}

// join makes this process a rank of its job, and connects it to the others.
//
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
	secret, err := wire.ReadSecretFile(cfg.SecretFile)
	if err != nil {
		return nil, err
	}
	id := &wire.Identity{Job: cfg.Job, Secret: secret, Rank: cfg.Rank, Size: cfg.Size}
	if id.TLS, err = wire.LoadTLS(cfg.TLSCert, cfg.TLSKey, cfg.TLSCA, cfg.TLSName); err != nil {
		return nil, err
	}
	addrs, err := interfaces(ctx, cfg)
	if err != nil {
		return nil, err
	}
	first, last, err := ports(cfg.Ports)
	if err != nil {
		return nil, err
	}
	l, err := wire.Listen(wire.ListenConfig{Addrs: addrs, PortMin: first, PortMax: last, Identity: id})
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
	self := wire.Member{Rank: cfg.Rank, Process: os.Getpid(), Node: wire.ThisNode(), Addrs: l.Addrs(), OnDemand: cfg.onDemand()}
	if sleep.wake != nil {
		self.Wake = sleep.wake.name
	}
	self.CPUs, _ = shmem.CPUs() // none if they are not known
	if name, err := os.Hostname(); err == nil {
		self.Host = wire.HostName(name)
	}
	coordinator := 0
	if cfg.Launcher {
		coordinator = wire.Launcher
	}
	meeting, err := wire.Join(ctx, id, cfg.Coordinator, coordinator, self)
	if err != nil {
		return nil, err
	}
	c := &connecting{cfg: cfg, id: id, l: l, members: meeting.Members, join: new(shortFrame)}
	c.spare = c.coresToSpare()
	var links []engine.Link
	err = meeting.Confirm(ctx, func(ctx context.Context) (err error) {
		if err = c.agreeOnConnect(); err != nil {
			return err
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
		return nil, err
	}
	return c.start(links, sleep, meeting)
}

// interfaces returns the addresses to listen at.
func interfaces(ctx context.Context, cfg Config) ([]netip.Addr, error) {
	choice := cfg.Interface
	host, _, err := wire.ParseCoordinator(cfg.Coordinator)
	if err != nil {
		return nil, err
	}
	if choice == "" && !local(host) {
		choice = "any"
	}
	return wire.Interfaces(choice)
}

// ports reads a range of ports.
func ports(text string) (first, last uint16, err error) {
	if text == "" {
		return 0, 0, nil
	}
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		to = from
	}
	a, err1 := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	b, err2 := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	if err1 != nil || err2 != nil || a == 0 || b < a {
		return 0, 0, initFault("COHORT_TCP_PORTS is %q: want a range such as 20000-20100, of ports from 1 to 65535", text)
	}
	return uint16(a), uint16(b), nil
}

// local reports whether a host is this machine by its name alone.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || strings.EqualFold(host, "localhost")
}
