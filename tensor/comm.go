package tensor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

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
	// it; on, whatever the library says, at the thread level multiple; off, never.
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
		return s, fault(cohort.ErrInit, "direct (COHORT_TENSOR_DIRECT) is %q: allowed are auto, on and off", s.Direct)
	}
	return s, nil
}

// Comm is a communicator for tensors. Any number of goroutines may use it at the same time; where
// several start collectives, it is up to the program that they do so in the same order on all ranks.
type Comm struct {
	*core
	coll, head, load *cohort.Comm // the core's, or handles of them with a context of their own
	ctx              context.Context
}

// core is what all handles of a communicator share.
type core struct {
	cfg              Config
	coll, head, load *cohort.Comm // for collectives; what messages are, and what they hold
	direct           bool         // the library beneath takes device memory
	queue            queue
	messages         messages

	// spoiled is why there are no collectives any more, which the other ranks may not know.
	spoiled atomic.Pointer[error]

	collBroken, loadBroken breakage

	closing sync.Mutex
	closed  bool
}

// NewComm returns a communicator for tensors of c's ranks. It has communicators of its own beneath, so
// that c is free for other uses; c stays open as long as it is used.
//
// Collective over c.
//
// Errors: [cohort.ErrInit] for a setting that is not allowed; [cohort.ErrMismatch] if the ranks' chunks
// differ, or another rank's setting is not allowed; what [cohort.Comm.Dup] says.
func NewComm(c *cohort.Comm, cfg *Config) (*Comm, error) {
	s, wrong := cfg.settle()
	k := &core{cfg: s}
	var err error
	for _, to := range []**cohort.Comm{&k.coll, &k.head, &k.load} {
		if *to, err = c.Dup(); err == nil && to == &k.coll {
			err = k.agree(wrong)
		}
		if err != nil {
			return nil, errors.Join(failed("newcomm", err), k.closeAll())
		}
	}
	k.direct = k.takesDevices()
	k.queue.init()
	k.messages.init(k)
	return &Comm{core: k, coll: k.coll, head: k.head, load: k.load, ctx: context.Background()}, nil
}

// agree checks that what must be the same on all ranks is. wrong is what is wrong with this rank's settings:
// the others, which may have no such setting, are not to wait for it.
func (k *core) agree(wrong error) error {
	const none = 0 // no chunk that is allowed
	chunk := int64(k.cfg.Chunk)
	if wrong != nil {
		chunk = none
	}
	ends := []int64{chunk, -chunk}
	if err := cohort.Allreduce(k.coll, ends, ends, cohort.Max); err != nil || wrong != nil {
		return cmp.Or(wrong, err)
	}
	switch most, least := ends[0], -ends[1]; {
	case least == none:
		return fault(cohort.ErrMismatch, "another rank has a setting that is not allowed: its error says which")
	case most != least:
		return fault(cohort.ErrMismatch, "the chunk (COHORT_TENSOR_CHUNK) is %d bytes on one rank, and %d on another", least, most)
	}
	return nil
}

// spoil ends the collectives here, and if the backend can do that those that other ranks wait in: this
// rank has failed where they cannot see it.
func (k *core) spoil(err error) {
	k.spoiled.CompareAndSwap(nil, &err)
	_ = k.coll.Revoke() // without it the others wait until their deadline, or the job's end
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

// Rank returns the caller's rank; [cohort.Undefined] of a nil communicator.
func (c *Comm) Rank() int {
	if c == nil {
		return cohort.Undefined
	}
	return c.coll.Rank()
}

// Size returns the number of ranks; 0 of a nil communicator.
func (c *Comm) Size() int {
	if c == nil {
		return 0
	}
	return c.coll.Size()
}

// WithContext returns a handle of the same communicator whose operations end when ctx does: their errors
// are [cohort.ErrTimeout] for a deadline, and [cohort.ErrCanceled] else.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c == nil || c.core == nil {
		return c
	}
	if ctx == nil {
		ctx = context.Background()
	}
	k := c.core
	return &Comm{core: k, coll: k.coll.WithContext(ctx), head: k.head.WithContext(ctx), load: k.load.WithContext(ctx), ctx: ctx}
}

// Close waits for the operations under way, and frees the communicator. Receives and probes for which
// no message has come end with [cohort.ErrClosed], as do operations after it. To close again, or a nil
// communicator, does nothing.
//
// Collective.
func (c *Comm) Close() error {
	if c == nil || c.core == nil {
		return nil
	}
	k := c.core
	k.closing.Lock()
	defer k.closing.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	k.queue.close()
	err := k.messages.close()
	return errors.Join(err, k.closeAll())
}
