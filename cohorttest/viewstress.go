package cohorttest

import (
	"context"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Many views at once, views as long as a limit, and views whose message does not end well.

// strided is a view of n elements, each with a gap behind it, and the elements.
func strided[T any](n int) (cohort.View[T], []T) {
	all := make([]T, 2*n)
	return cohort.ViewOf(all, cohort.Vector(n, 1, 2)), all
}

// numbered is a strided view whose elements are different for each seed.
func numbered(n, seed int) (cohort.View[int64], []int64) {
	v, all := strided[int64](n)
	for i := range all {
		all[i] = int64(seed)<<32 + int64(i)
	}
	return v, all
}

// received checks that a strided view, all zero before, has the elements of numbered and nothing between them.
func received(r *Rank, all []int64, n, seed int, what string) {
	same(r, all, func(i int) int64 {
		if i%2 == 0 && i < 2*n {
			return int64(seed)<<32 + int64(i)
		}
		return 0
	}, "%s", what)
}

// untouched checks that nothing writes to memory any more.
func untouched(r *Rank, memory []int64) {
	for i := range memory {
		memory[i] = -int64(i)
	}
	r.OK(r.Comm.Barrier()) // the others have ended their operations too
	must2(r.Comm.Iprobe(cohort.AnySource, cohort.AnyTag))
	same(r, memory, func(i int) int64 { return -int64(i) }, "memory after the receive had ended")
}

// viewCut ends long views in the middle, at different moments: by the deadline of the sender or the receiver, or by Close
// of the communicator. It is an error of the other side too, and nothing is written afterwards.
func viewCut(r *Rank) {
	if r.World.Caps().Library != "" {
		return // a library goes on with a send whose receive was given up, and may not free a communicator in use
	}
	const n = 1 << 18
	for i := range 18 {
		after := 50 * time.Microsecond << (i / 3)
		d := must(r.Comm.Dup())
		from, sent := numbered(n, r.Rank)
		to, got := strided[int64](n)
		ctx, cancel := context.WithTimeout(context.Background(), after)
		sends, recvs := d, d
		switch i % 3 {
		case 0:
			sends = d.WithContext(ctx)
		case 1:
			recvs = d.WithContext(ctx)
		}
		q, posted := cohort.IrecvView(recvs, to, r.prev, 1)
		done := q.Done() // from now on a goroutine waits for it, so no Close misses its Wait
		var closed chan error
		if i%3 == 2 {
			closed = make(chan error, 1)
			time.AfterFunc(after, func() { closed <- d.Close() })
		}
		send, recv := make(chan error, 1), make(chan error, 1)
		go func() {
			err := cohort.SendView(sends, from, r.next, 1)
			clear(sent)
			send <- err
		}()
		go func() {
			<-done
			recv <- wait(q, posted)
		}()
		for range 2 {
			var what string
			var err error
			select {
			case err = <-send:
				what = "SendView"
			case err = <-recv:
				if what = "IrecvView"; err == nil {
					received(r, got, n, r.prev, "a view that was nearly cut")
				}
			}
			if err == nil {
				continue
			}
			r.OK(d.Close()) // ends the other call and those of the other ranks
			may := []error{cohort.ErrTimeout, cohort.ErrPeerLost, cohort.ErrClosed, cohort.ErrBroken}
			if what == "IrecvView" && i%3 == 0 {
				may = append(may, cohort.ErrCanceled) // the sender has given up a message that this receive had matched
			}
			r.only(err, fmt.Sprintf("%s that ends after %v", what, after), may...)
		}
		cancel()
		if closed != nil {
			r.OK(<-closed)
		}
		untouched(r, got)
		r.OK(d.Close())
	}
}
