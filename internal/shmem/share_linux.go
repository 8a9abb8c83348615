package shmem

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
)

// shareLimit is how long a rank tries to fetch what rank 0, which answers at once, has exposed.
const shareLimit = 60 * time.Second

// lookEvery is how often a rank that fetches checks whether the communicator has ended.
const lookEvery = 50 * time.Millisecond

// Share makes an area of size bytes that the ranks of c, all on one node, have in common, as
// backend.Sharing describes. Rank 0 makes it and exposes it, and the others fetch it.
func Share(b *backend.Bound, c backend.Comm, size int, publish backend.Publish) (backend.Memory, error) {
	if c.Rank() == 0 {
		return share(c.Size(), size, publish)
	}
	all, err := publish("")
	if err != nil {
		return nil, err
	}
	var mem *Area
	failed := errNoExport
	if name := all[0]; name != "" {
		ctx, end := shareBound(b, c)
		var fd int
		fd, failed = Fetch(ctx, name)
		if failed != nil {
			failed = whyEnded(ctx, failed)
		}
		if end(); failed == nil {
			mem, failed = OpenArea(fd, size)
		}
	}
	if _, err := publish(""); err != nil {
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

// whyEnded is the error of a fetch that failed: that the time was up or the communicator has ended,
// if that is why.
func whyEnded(ctx context.Context, failed error) error {
	sentinel := backend.ErrCanceled
	switch cause := context.Cause(ctx).(type) {
	case nil:
		return failed
	case *backend.Fault:
		return cause
	default:
		if errors.Is(cause, context.DeadlineExceeded) {
			sentinel = backend.ErrTimeout
		}
	}
	return &backend.Fault{Sentinel: sentinel, Text: failed.Error()}
}

var errNoExport error = &backend.Fault{Sentinel: backend.ErrAlloc, Text: "rank 0 could not allocate the memory"}

// share is rank 0's part of Share.
func share(ranks, size int, publish backend.Publish) (backend.Memory, error) {
	mem, fd, failed := CreateArea("cohort-window", size)
	name := ""
	if failed == nil {
		defer unix.Close(fd)
		var o *Export
		if o, failed = NewExport(fd, ranks-1); failed == nil {
			defer o.Close()
			name = o.Name
		}
	}
	_, err := publish(name)
	if err == nil {
		_, err = publish("") // all have it
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

// shareBound returns a context that ends when an operation begun now has to end, when the
// communicator has ended (because rank 0 is lost, for instance), and after shareLimit. The caller
// calls end when it is done.
func shareBound(b *backend.Bound, c backend.Comm) (ctx context.Context, end func()) {
	ctx = context.Background()
	timeout := shareLimit
	if b != nil {
		if b.Ctx != nil {
			ctx = b.Ctx
		}
		if b.Timeout > 0 {
			timeout = min(timeout, b.Timeout)
		}
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	until, ended := Until(nil, c), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := until(); err != nil {
					cancel(err)
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		stop()
		<-ended
	}
}
