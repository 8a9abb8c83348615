package tensor

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// Config says how a communicator moves tensors. The zero value, and nil, take everything from the
// environment. It is the same on all ranks.
type Config struct {
	// Chunk is the length in bytes of the pieces in which long tensors are moved
	// (COHORT_TENSOR_CHUNK): 4 MiB if it is 0.
	Chunk int

	// Direct says whether a device's memory is given to the library beneath as it is
	// (COHORT_TENSOR_DIRECT): auto, which empty is too, where the library says that it takes
	// it; on, whatever the library says; off, never.
	Direct string
}

// Values of Config.Chunk.
const (
	chunkDefault = 4 << 20
	chunkLeast   = 1 << 10
	chunkMost    = 1 << 30
)

// settle fills in what the environment says, and checks it.
func (cfg *Config) settle() (Config, error) {
	var s Config
	if cfg != nil {
		s = *cfg
	}
	if v := os.Getenv("COHORT_TENSOR_CHUNK"); s.Chunk == 0 && v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return s, fault(cohort.ErrInit, "COHORT_TENSOR_CHUNK is %q: want a number of bytes", v)
		}
		s.Chunk = n
	}
	if s.Chunk == 0 {
		s.Chunk = chunkDefault
	}
	if s.Chunk < chunkLeast || s.Chunk > chunkMost {
		return s, fault(cohort.ErrInit, "the chunk (COHORT_TENSOR_CHUNK) is %d bytes: want %d to %d", s.Chunk, chunkLeast, chunkMost)
	}
	if s.Direct == "" {
		s.Direct = os.Getenv("COHORT_TENSOR_DIRECT")
	}
	switch s.Direct {
	case "":
		s.Direct = "auto"
	case "auto", "on", "off":
	default:
		return s, fault(cohort.ErrInit, "COHORT_TENSOR_DIRECT is %q: allowed are auto, on and off", s.Direct)
	}
	return s, nil
}

// Comm is a communicator for tensors. Any number of goroutines may use it at the same time; where
// several start collectives, it is up to the program that they do so in the same order on all ranks.
type Comm struct {
	*core
	coll, head, load *cohort.Comm // the core's, or handles of them with a context of their own
}

// core is what all handles of a communicator share.
type core struct {
	cfg              Config
	coll, head, load *cohort.Comm // for collectives; what messages are, and what they hold
	direct           bool         // the library beneath takes device memory
	queue            queue
	messages         messages

	closing sync.Mutex
	closed  bool
}

// NewComm returns a communicator for tensors of c's ranks. It has communicators of its own beneath, so
// that c is free for other uses; c stays open as long as it is used.
//
// Collective over c.
//
// Errors: [cohort.ErrInit] for a setting that is not allowed; what [cohort.Comm.Dup] says.
func NewComm(c *cohort.Comm, cfg *Config) (*Comm, error) {
	s, err := cfg.settle()
	if err != nil {
		return nil, failed("newcomm", err)
	}
	k := &core{cfg: s}
	for _, to := range []**cohort.Comm{&k.coll, &k.head, &k.load} {
		if *to, err = c.Dup(); err != nil {
			return nil, errors.Join(failed("newcomm", err), k.closeAll())
		}
	}
	k.direct = k.takesDevices()
	k.queue.init()
	k.messages.init(k)
	return &Comm{core: k, coll: k.coll, head: k.head, load: k.load}, nil
}

func (k *core) closeAll() error {
	var all []error
	for _, c := range []*cohort.Comm{k.coll, k.head, k.load} {
		if c != nil {
			all = append(all, c.Close())
		}
	}
	return errors.Join(all...)
}

// Rank returns the caller's rank.
func (c *Comm) Rank() int { return c.coll.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.coll.Size() }

// WithContext returns a handle of the same communicator whose operations end when ctx does.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	return &Comm{core: c.core, coll: c.core.coll.WithContext(ctx), head: c.core.head.WithContext(ctx), load: c.core.load.WithContext(ctx)}
}

// Close waits for the operations under way, and frees the communicator. Operations after it give
// [cohort.ErrClosed].
//
// Collective.
func (c *Comm) Close() error {
	k := c.core
	k.closing.Lock()
	defer k.closing.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	k.queue.close()
	k.messages.close()
	return k.closeAll()
}
