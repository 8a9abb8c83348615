package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// Config describes this process's rank and how it joins its job. cohort.TCPConfig and TLSConfig say more about the fields
// that they have too. With TLS, TLSCert, TLSKey and TLSCA are set.
type Config struct {
	backend.Config

	Coordinator string // the address, HOST:PORT, to which all ranks connect at the start; empty with Share
	Met         string // with Share: the Coordinator of an earlier world of the job; rank 0 listens on the same interface. May be empty
	Launcher    bool   // the process that started the ranks listens there, by meet.Serve; otherwise rank 0 does
	Worlds      *int   // nil: a process that ends is not replaced. Else how many worlds this one has been in; Open sets it to the most of any rank

	SecretFile       string // may be empty with Share: rank 0 then makes a secret for the job
	Secret           string // the text of such a file, in place of one
	Interface, Ports string
	Connect          string // ConnectStart, ConnectDemand, or empty: the first for jobs of up to startMost ranks
	Checksum         bool
	Sockets          bool

	TLSCert, TLSKey, TLSCA, TLSName string

	// Of a later world: the name of the job's first one, and which rank of that each rank is. Certificates have those names.
	FirstJob   string // "": Job
	FirstRanks []int  // nil: the same
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

// mostFailures is how often the ranks of a next world may fail to connect, if none of them is lost or gives up.
const mostFailures = 3

// Open joins the job: it returns when all ranks are connected, to each other or to rank 0, or with an ErrInit
// that says which are missing when ctx ends or the time is up.
func Open(ctx context.Context, cfg Config) (backend.Comm, error) {
	switch {
	case cfg.Connect != "" && cfg.Connect != ConnectStart && cfg.Connect != ConnectDemand:
		return nil, backend.Faultf(backend.ErrInit, "COHORT_TCP_CONNECT is %q: want start or demand", cfg.Connect)
	case cfg.SecretFile == "" && cfg.Secret == "" && (cfg.Share == nil || cfg.Coordinator != ""):
		return nil, backend.Faultf(backend.ErrInit, "backend tcp needs the job's secret (COHORT_SECRET_FILE or COHORT_SECRET)")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.JoinTimeout, backend.JoinLimit))
	defer cancel()
	world, err := enter(ctx, cfg)
	if err == nil {
		return world, nil
	}
	if f, ok := errors.AsType[*backend.Fault](err); !ok || f.Sentinel == backend.ErrTimeout || f.Sentinel == backend.ErrCanceled {
		err = fmt.Errorf("%w: rank %d of %d, backend tcp: %w", backend.ErrInit, cfg.Rank, cfg.Size, err)
	}
	return nil, err
}

// An unconnected is the error of ranks that have met for a next world and could not all be connected, or of one that was lost
// before it could start there.
type unconnected struct{ error }

// enter is join, again while other ranks are lost, or give up, when the ranks of a next world connect.
func enter(ctx context.Context, cfg Config) (backend.Comm, error) {
	for failures := 0; ; {
		world, err := join(ctx, cfg)
		broken, ok := err.(unconnected)
		if !ok {
			return world, err
		}
		end, _ := ctx.Deadline()
		switch err = broken.error; {
		case ctx.Err() != nil: // this rank gives up, whatever the others do
			end := backend.AsFault((&backend.Bound{Ctx: ctx}).Err(time.Now()))
			return nil, backend.Faultf(end.Sentinel, "%s", backend.AsFault(err).Text)
		case errors.Is(err, backend.ErrTimeout) && time.Until(end) <= meet.Spare:
			return nil, err // this rank gives up
		case errors.Is(err, backend.ErrPeerLost), errors.Is(err, backend.ErrTimeout), errors.Is(err, backend.ErrCanceled):
			continue
		}
		if failures++; failures == mostFailures {
			return nil, err
		}
	}
}
