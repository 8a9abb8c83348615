package backend

import (
	"context"
	"time"
)

// Opener joins the job that this process was started in, and returns the communicator of all its ranks,
// the world. It returns when all ranks have joined. When ctx ends, or JoinTimeout is over, it returns
// ErrInit, which names the missing ranks. cohort.Register takes an Opener.
type Opener func(ctx context.Context, cfg Config) (Comm, error)

// JoinLimit is how long ranks wait for each other at the start if JoinTimeout is 0.
const JoinLimit = 60 * time.Second

// Config is the part of cohort.Config that every backend can use, completed from the environment. An
// Opener with more settings reads its own environment variables.
type Config struct {
	// Rank and Size are the place of this process in the job. cohort run sets them, and so may any other
	// launcher. Size is 0 if none has.
	Rank, Size int

	Job string // the same on all ranks of the job, and of no other job of this user on the node

	// Share returns on every rank what rank 0 passes to it: a short text without spaces. All ranks may call it, once. It
	// is nil where the launcher has no key-value space, or the settings say how the ranks find each other.
	Share func(ctx context.Context, text string) (string, error)

	Timeout     time.Duration // of each operation; 0: none. Each operation gets it in its Bound.
	Heartbeat   time.Duration // how long another rank may be silent; 0: the backend's default, below 0: no limit
	JoinTimeout time.Duration // how long the ranks wait for each other at the start; 0: JoinLimit

	Check         bool // detect mismatched collectives even where that costs time
	Deterministic bool // combine operands of reductions in the order of coll.Order
}

// HeartbeatMin is the shortest Heartbeat that a busy machine can keep. Package cohort refuses a shorter one in its
// settings, and shm and tcp raise that of any other caller.
const HeartbeatMin = 100 * time.Millisecond
