package shm

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Share implements backend.Sharer: rank 0 makes the memory and offers it, and the
// others fetch it.
func (c *comm) Share(b *backend.Bound, size int, tell backend.Tell) (backend.Memory, error) {
	if c.rank == 0 {
		return c.offer(size, tell)
	}
	all, err := tell("")
	if err != nil {
		return nil, err
	}
	var mem *shmem.Area
	failed := errNoOffer
	if name := all[0]; name != "" {
		ctx, cancel := limit(b)
		defer cancel()
		var fd int
		if fd, failed = shmem.Fetch(ctx, name); failed == nil {
			mem, failed = shmem.OpenArea(fd, size)
		}
	}
	if _, err := tell(""); err != nil {
		if mem != nil {
			mem.Close()
		}
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	return mem, nil
}

var errNoOffer error = &backend.Fault{Sentinel: backend.ErrAlloc, Text: "rank 0 has no memory"}

func (c *comm) offer(size int, tell backend.Tell) (backend.Memory, error) {
	mem, fd, failed := shmem.CreateArea("cohort-window", size)
	name := ""
	if failed == nil {
		defer unix.Close(fd)
		var o *shmem.Offer
		if o, failed = shmem.NewOffer(fd, c.Size()-1); failed == nil {
			defer o.Close()
			name = o.Name
		}
	}
	_, err := tell(name)
	if err == nil {
		_, err = tell("") // all have it
	}
	if err == nil {
		err = failed
	}
	if err != nil {
		if mem != nil {
			mem.Close()
		}
		return nil, err
	}
	return mem, nil
}

// limit returns a context that ends when an operation begun now has to, and after
// joinLimit: rank 0, which answers without being asked for more, has just been
// there.
func limit(b *backend.Bound) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	timeout := joinLimit
	if b != nil {
		if b.Ctx != nil {
			ctx = b.Ctx
		}
		if b.Timeout > 0 {
			timeout = min(timeout, b.Timeout)
		}
	}
	return context.WithTimeout(ctx, timeout)
}

// Spare implements backend.Sharer.
func (c *comm) Spare() (int64, string) { return -1, "" }
