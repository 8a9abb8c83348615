package tensor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Config says how a communicator moves tensors. The zero value and nil take every setting from the
// environment. It must be the same on all ranks.
type Config struct {
	// Chunk is the length in bytes of the pieces in which long tensors are moved
	// (COHORT_TENSOR_CHUNK). The default is 4 MiB.
	Chunk int

	// Direct says whether device memory is passed directly to the MPI library
	// (COHORT_TENSOR_DIRECT): auto, the default, if the library reports that it accepts device
	// memory; on, whatever the library reports, at thread level multiple; off, never.
	Direct string
}

// Limits and default of Config.Chunk.
const (
	chunkDefault = 4 << 20
	chunkLeast   = 1 << 10
	chunkMost    = 1 << 30
)

// resolve adds the settings of the environment and the defaults, and checks all of them.
func (cfg *Config) resolve() (Config, error) {
	var s Config
	if cfg != nil {
		s = *cfg
	}
	if v := os.Getenv("COHORT_TENSOR_CHUNK"); s.Chunk == 0 && v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return s, fault(cohort.ErrInit, "COHORT_TENSOR_CHUNK is %q; want a number of bytes", v)
		}
		s.Chunk = n
	}
	if s.Chunk == 0 {
		s.Chunk = chunkDefault
	}
	if s.Chunk < chunkLeast || s.Chunk > chunkMost {
		return s, fault(cohort.ErrInit, "Chunk (COHORT_TENSOR_CHUNK) is %d bytes; want %d to %d", s.Chunk, chunkLeast, chunkMost)
	}
	if s.Direct == "" {
		s.Direct = os.Getenv("COHORT_TENSOR_DIRECT")
	}
	switch s.Direct {
	case "":
		s.Direct = "auto"
	case "auto", "on", "off":
	default:
		return s, fault(cohort.ErrInit, "Direct (COHORT_TENSOR_DIRECT) is %q; want auto, on or off", s.Direct)
	}
	return s, nil
}

// Comm is a communicator for tensors. Any number of goroutines may use it at the same time. If
// several of them start collectives, the program must make sure that all ranks start them in the
// same order.
type Comm struct {
	*core
	coll, head, load *cohort.Comm // the core's, or handles of them with their own context
	ctx              context.Context
}

// core is the state shared by all handles of a communicator.
type core struct {
	cfg              Config
	coll, head, load *cohort.Comm // for collectives; for envelopes; for payloads
	direct           bool         // the MPI library accepts device memory
	viewed           sync.Once    // it has been given some
	queue            queue
	messages         messages

	// failure is why collectives have ended on this rank; the other ranks may not know it.
	failure atomic.Pointer[error]

	collBroken, loadBroken breakage

	closing sync.Mutex
	closed  bool
}

// NewComm returns a communicator for tensors among c's ranks. It works on duplicates of c, so that
// c remains free for other uses. c must stay open as long as the new communicator is used.
//
// Collective over c.
//
// Errors: on every rank, [cohort.ErrInit] for an invalid setting of one; [cohort.ErrMismatch] if the
// ranks' chunks differ; those of [cohort.Comm.Dup].
//
// Deadline: [cohort.ErrTimeout], as for [cohort.Comm.Dup].
func NewComm(c *cohort.Comm, cfg *Config) (*Comm, error) {
	s, wrong := cfg.resolve()
	k := &core{cfg: s}
	var err error
	for _, to := range []**cohort.Comm{&k.coll, &k.head, &k.load} {
		if *to, err = c.Dup(); err == nil && to == &k.coll {
			err = agree(k.coll, k.cfg.Chunk, wrong, "Chunk (COHORT_TENSOR_CHUNK) is %d, but %d on rank 0")
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

// agree returns an error on all ranks if one of them is wrong, or if mine differs from that of rank 0. text says so of
// the two numbers.
func agree[N int | uint64](c *cohort.Comm, mine N, wrong error, text string) error {
	first, err := cohort.BcastOne(c, mine, 0)
	if err != nil {
		return errors.Join(wrong, err)
	}
	if wrong == nil && mine != first {
		wrong = fault(cohort.ErrMismatch, text, mine, first)
	}
	return cohort.JoinErrors(c, wrong)
}

// breakWith ends the collectives of this rank after a local failure. Where the backend can revoke,
// it also ends the collectives in which other ranks wait.
func (k *core) breakWith(err error) {
	k.failure.CompareAndSwap(nil, &err)
	_ = k.coll.Revoke() // without it the others wait until their deadline or the end of the job
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

// Rank returns the caller's rank, or [cohort.Undefined] for a nil communicator.
func (c *Comm) Rank() int {
	if c == nil {
		return cohort.Undefined
	}
	return c.coll.Rank()
}

// Size returns the number of ranks, or 0 for a nil communicator.
func (c *Comm) Size() int {
	if c == nil {
		return 0
	}
	return c.coll.Size()
}

// WithContext returns a handle of the same communicator whose operations end when ctx does: with
// [cohort.ErrTimeout] at a deadline, otherwise with [cohort.ErrCanceled].
//
// Not collective.
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

// closeFor is how long Close waits for operations to complete, and then for those that it has ended to return. Tests
// shorten it.
var closeFor = time.Second

// Close frees the communicator. Collectives, sends, and receives whose message has arrived have a second
// to complete. Then they end with [cohort.ErrClosed]. Receives and probes for which no message has arrived
// end so at once, as do later operations. Closing again, or closing a nil communicator, does nothing.
//
// An operation that waits in a blocking function of an MPI library or for a device may not end. Close waits
// another second for it. Do not close the operation's tensors then.
//
// Collective.
//
// Errors: [cohort.ErrRequest] if an operation was not complete after a second, which the error names; those
// of [cohort.Comm.Close].
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
	q, m := &k.queue, &k.messages
	within, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	left := q.close(within)
	m.close(within)
	err := k.head.Close() // ends receives and probes without a message
	left = cmp.Or(left, m.end(within))
	m.stop()
	if left == nil {
		m.background.Wait()
	}
	err = errors.Join(failed("close", left), err, k.closeAll())
	if left != nil {
		again, cancel := context.WithTimeout(context.Background(), closeFor)
		defer cancel()
		_, _ = q.close(again), m.end(again)
	}
	return err
}

// breakage records whether an underlying communicator is known to be broken.
type breakage struct{ known atomic.Bool }

// keeps reports whether the MPI library may still be using the memory of a failed call that began
// before the communicator was known to be broken. A call of MPI that timed out here goes on inside
// the library and breaks its communicator. Later calls are refused before they reach the library.
func (b *breakage) keeps(c *cohort.Comm) bool {
	if c.Backend() != "mpi" {
		return false
	}
	_, _, err := c.Iprobe(cohort.AnySource, cohort.AnyTag)
	if err == nil || errors.Is(err, cohort.ErrInit) { // ErrInit: this thread may not call the library, so the failed call did not either
		return false
	}
	b.known.Store(true)
	return true
}
