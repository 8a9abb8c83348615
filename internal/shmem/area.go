package shmem

import (
	"cmp"
	"os"
	"sync"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
)

// PageSize is the unit in which memory is mapped.
var PageSize = os.Getpagesize()

// Area is memory that users hold slices of. It is a backend.Memory. On Linux it is mapped, and unlike
// those of a Segment it has no pages until they are populated or touched; elsewhere it is Go's.
type Area struct {
	mu    sync.Mutex // guards the fields below
	mem   []byte
	users int // that close it
}

// Bytes returns the memory, which begins on a page; nil after the last Close.
func (a *Area) Bytes() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mem
}

// Retain returns the area for one more user, who closes it too.
func (a *Area) Retain() (*Area, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mem == nil {
		return nil, &backend.Fault{Sentinel: backend.ErrClosed, Text: "the memory is closed"}
	}
	a.users++
	return a, nil
}

// Close gives the memory back when every user has called it. On Linux its addresses stay taken for as
// long as they can be (see Guard): a slice of it that the program has kept leads to a fault and never to
// other memory.
func (a *Area) Close(*backend.Bound) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users--; a.mem == nil || a.users > 0 {
		return nil
	}
	mem := a.mem
	a.mem = nil
	return free(mem)
}

// Joint implements backend.Memory: every rank closes its own.
func (a *Area) Joint() bool { return false }

// Abandon implements backend.Memory.
func (a *Area) Abandon() { _ = a.Close(nil) }

// ShareBy gives ranks an area in common, as backend.Sharing describes. Rank 0 makes it and publishes
// its name, by which the others open it. The name need not be good any more when ShareBy returns.
func ShareBy(rank int, publish backend.Publish, make func() (a *Area, name string, err error), open func(name string) (*Area, error)) (backend.Memory, error) {
	var a *Area
	var name string
	var failed error
	if rank == 0 {
		if a, name, failed = make(); failed != nil {
			name = ""
		}
	}
	all, err := publish(name)
	if err == nil {
		if rank > 0 && all[0] == "" {
			failed = backend.Faultf(backend.ErrAlloc, "rank 0 could not allocate the memory")
		} else if rank > 0 {
			a, failed = open(all[0])
		}
		_, err = publish("")
	}
	if err = cmp.Or(err, failed); err != nil {
		if a != nil {
			a.Abandon()
		}
		return nil, err
	}
	return a, nil
}

// Aligned returns b from its first byte on that begins a page; nil if there is none.
func Aligned(b []byte) []byte {
	// SAFETY: only a number is taken.
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(PageSize-1))
	if skip >= len(b) {
		return nil
	}
	return b[skip:]
}

// populateStep is how many bytes are populated at a time.
const populateStep = 64 << 20

// touch writes a zero to every page of b, which holds nothing else. An error of stop, which is asked
// between the steps, ends it.
func touch(b []byte, stop func() error) error {
	for len(b) > 0 {
		if err := stop(); err != nil {
			return err
		}
		n := min(len(b), populateStep)
		for i := 0; i < n; i += PageSize {
			b[i] = 0
		}
		b[n-1] = 0
		b = b[n:]
	}
	return nil
}
