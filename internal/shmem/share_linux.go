package shmem

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
)

// shareLimit is how long a rank tries to fetch what rank 0, which answers without being asked for
// more, has just offered.
const shareLimit = 60 * time.Second

// Share makes an area of size bytes that several ranks of one node have in common, as
// backend.Sharer describes: rank 0 makes it and offers it, and the others fetch it.
func Share(b *backend.Bound, rank, ranks, size int, tell backend.Tell) (backend.Memory, error) {
	if rank == 0 {
		return share(ranks, size, tell)
	}
	all, err := tell("")
	if err != nil {
		return nil, err
	}
	var mem *Area
	failed := errNoOffer
	if name := all[0]; name != "" {
		ctx, cancel := shareBound(b)
		defer cancel()
		var fd int
		if fd, failed = Fetch(ctx, name); failed == nil {
			mem, failed = OpenArea(fd, size)
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

// share is rank 0's part of Share.
func share(ranks, size int, tell backend.Tell) (backend.Memory, error) {
	mem, fd, failed := CreateArea("cohort-window", size)
	name := ""
	if failed == nil {
		defer unix.Close(fd)
		var o *Offer
		if o, failed = NewOffer(fd, ranks-1); failed == nil {
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

// shareBound returns a context that ends when an operation begun now has to, and after shareLimit.
func shareBound(b *backend.Bound) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	timeout := shareLimit
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
