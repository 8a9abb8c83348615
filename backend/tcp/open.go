package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/frame"
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
	if id.TLS, err = cfg.tls(); err != nil {
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
	self := wire.Member{Rank: cfg.Rank, Process: os.Getpid(), Node: wire.ThisNode(), Addrs: l.Addrs(), Info: info(cfg, sleep.wake)}
	if name, err := os.Hostname(); err == nil {
		self.Host = wire.HostName(name)
	}
	members, confirm, coordinator, err := rendezvous(ctx, cfg, id, self)
	if err != nil {
		return nil, err
	}
	c := &connecting{id: id, l: l, members: members, sums: cfg.Checksum, demand: cfg.onDemand(), spare: coresToSpare(members, &self),
		join: new([corkMax + frame.HeaderSize + joinMax]byte)}
	var links []engine.Link
	err = confirm(ctx, func(ctx context.Context) (err error) {
		if err = agreeOnConnect(members, &self); err != nil {
			return err
		}
		if err = c.meet(ctx, cfg.Job, sleep); err != nil {
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
	return c.start(cfg, links, sleep, self, coordinator)
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

// tls reads the certificates, if TLS is configured.
func (cfg *Config) tls() (*wire.TLS, error) {
	if cfg.TLSCert == "" && cfg.TLSKey == "" && cfg.TLSCA == "" {
		if cfg.TLSName != "" {
			return nil, initFault("COHORT_TCP_TLS_NAME is set without a certificate; set COHORT_TCP_TLS_CERT, _KEY and _CA too")
		}
		return nil, nil
	}
	if cfg.TLSCert == "" || cfg.TLSKey == "" || cfg.TLSCA == "" {
		return nil, initFault("TLS needs three files: a certificate (COHORT_TCP_TLS_CERT, %q), its key (COHORT_TCP_TLS_KEY, %q), "+
			"and the authorities (COHORT_TCP_TLS_CA, %q)", cfg.TLSCert, cfg.TLSKey, cfg.TLSCA)
	}
	name := cfg.TLSName
	if name == "" {
		name = "cohort"
	}
	return wire.LoadTLS(cfg.TLSCert, cfg.TLSKey, cfg.TLSCA, name)
}

// ports reads a range of ports.
func ports(text string) (first, last int, err error) {
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
	return int(a), int(b), nil
}

// local reports whether a host is this machine by its name alone.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || strings.EqualFold(host, "localhost")
}

// rendezvous returns all ranks of the job, the function that makes all of them connect to each other or
// none, and the coordinator's listener if this rank is the coordinator.
func rendezvous(ctx context.Context, cfg Config, id *wire.Identity, self wire.Member) (
	members []wire.Member, confirm func(ctx context.Context, connect func(context.Context) error) error, listener *wire.Listener, err error) {
	if cfg.Rank > 0 || cfg.Launcher {
		to := 0
		if cfg.Launcher {
			to = wire.Launcher
		}
		members, c, err := wire.Join(ctx, id, cfg.Coordinator, to, self)
		if err != nil {
			return nil, nil, nil, err
		}
		return members, func(ctx context.Context, connect func(context.Context) error) error {
			defer c.Close() // from then on a rank learns of losses by its own connections
			return c.Confirm(ctx, connect)
		}, nil, nil
	}
	host, port, err := wire.ParseCoordinator(cfg.Coordinator)
	if err != nil {
		return nil, nil, nil, err
	}
	addrs, err := wire.CoordinatorAddrs(ctx, host)
	if err != nil {
		return nil, nil, nil, err
	}
	here := *id
	here.Coordinator = true
	l, err := wire.Listen(wire.ListenConfig{Addrs: addrs, PortMin: int(port), Identity: &here})
	if err != nil {
		return nil, nil, nil, err
	}
	defer l.Close()
	members, conns, err := wire.Coordinate(ctx, l, &self)
	if err != nil {
		return nil, nil, nil, err
	}
	return members, func(ctx context.Context, connect func(context.Context) error) error {
		defer func() {
			for _, c := range conns {
				if c != nil {
					c.Close()
				}
			}
		}()
		return wire.Oversee(ctx, members, conns, connect)
	}, l, nil
}

// infoShares, in the first byte of a rank's information, says that it uses shared memory. The set of
// processors that it may use follows, and then the name of its wake-up socket.
const infoShares byte = 1

// infoDemand says that it makes connections on demand.
const infoDemand byte = 2

// agreeOnConnect checks that all ranks make their connections at the same time.
func agreeOnConnect(members []wire.Member, self *wire.Member) error {
	for r := range members {
		if (flags(&members[r])^flags(self))&infoDemand != 0 {
			return initFault("ranks %d and %d have different values of COHORT_TCP_CONNECT; give all ranks the same", self.Rank, r)
		}
	}
	return nil
}

// info returns what the others need to know about this rank.
func info(cfg Config, d *wakeSocket) []byte {
	b := []byte{0}
	if d != nil {
		b[0] |= infoShares
	}
	if cfg.onDemand() {
		b[0] |= infoDemand
	}
	cpus, _ := shmem.CPUs() // none if they are not known
	for _, w := range cpus {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	if d != nil {
		b = append(b, d.name...)
	}
	return b
}

// cpusOf returns the processors that a rank may use.
func cpusOf(m *wire.Member) (cpus [16]uint64) {
	if len(m.Info) >= infoWake {
		for i := range cpus {
			cpus[i] = binary.LittleEndian.Uint64(m.Info[1+8*i:])
		}
	}
	return cpus
}

// wakeNameOf returns the name of a rank's wake-up socket.
func wakeNameOf(m *wire.Member) string { return string(m.Info[min(infoWake, len(m.Info)):]) }

const infoWake = 1 + 16*8 // where the name begins

func flags(m *wire.Member) byte {
	if len(m.Info) == 0 {
		return 0
	}
	return m.Info[0]
}

// shares reports whether two ranks are of one node and both take part in shared memory.
func shares(a, b *wire.Member) bool { return a.Shares(b) && flags(a)&flags(b)&infoShares != 0 }
