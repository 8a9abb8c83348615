package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// Config describes this process's rank and how it joins its job.
type Config struct {
	Rank, Size int
	Job        string // the same on all ranks of the job

	// Coordinator is the address, HOST:PORT, to which all ranks connect at the start. Rank 0 listens
	// there; with Launcher, the process that started the ranks does, by meet.Serve.
	Coordinator string
	Launcher    bool

	// SecretFile is the path of the job's secret, with which the ranks authenticate each other.
	SecretFile string

	// Heartbeat is how long another rank may be silent before it is lost: 0 means 10 s, a negative value
	// no limit, and less than 100 ms means 100 ms. It is the same on all ranks.
	Heartbeat time.Duration

	// JoinTimeout is how long a rank waits for the others at the start; 0 means 60 s.
	JoinTimeout time.Duration

	// Check makes this rank wait for all others in every blocking collective of a communicator within one node,
	// so that it returns their mismatch.
	Check bool

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

// Open joins the job: it returns when all ranks are connected, to each other or to rank 0, or with an ErrInit
// that says which are missing when ctx ends or the time is up.
func Open(ctx context.Context, cfg Config) (backend.Comm, error) {
	switch {
	case cfg.Connect != "" && cfg.Connect != ConnectStart && cfg.Connect != ConnectDemand:
		return nil, backend.Faultf(backend.ErrInit, "COHORT_TCP_CONNECT is %q: want start or demand", cfg.Connect)
	case cfg.SecretFile == "":
		return nil, backend.Faultf(backend.ErrInit, "backend tcp needs the file with the job's secret (COHORT_SECRET_FILE)")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.JoinTimeout, 60*time.Second))
	defer cancel()
	world, err := join(ctx, cfg)
	if err == nil {
		return world, nil
	}
	if f, ok := errors.AsType[*backend.Fault](err); !ok || f.Sentinel == backend.ErrTimeout || f.Sentinel == backend.ErrCanceled {
		err = fmt.Errorf("%w: rank %d of %d, backend tcp: %w", backend.ErrInit, cfg.Rank, cfg.Size, err)
	}
	return nil, err
}
