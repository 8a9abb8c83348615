package cohorttest

import (
	"context"
	"errors"
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
	for i, x := range all {
		want := int64(0)
		if i%2 == 0 && i < 2*n {
			want = int64(seed)<<32 + int64(i)
		}
		if x != want {
			r.Errorf("%s: element %d of %d is %#x, want %#x", what, i, len(all), x, want)
			return
		}
	}
}

// viewLimits sends messages as long as a limit of some backend, of one element less and of one more, from views and
// slices to views and slices.
func viewLimits(r *Rank) {
	limits(r, kind[byte]{"byte", func(x int) byte { return byte(x) }, 0xa5}, 1)
	limits(r, int32s, 4)
	limits(r, triples, 3)
	limits(r, kind[[4096]byte]{"page", func(x int) [4096]byte { return [4096]byte{byte(x), 4095: byte(x >> 8)} }, [4096]byte{1}}, 4096)
}

func limits[T comparable](r *Rank, k kind[T], size int) {
	for _, limit := range []int{32 << 10, 64 << 10, 256 << 10} {
		n := limit / size
		exchanges(r, k, []int{0}, n-1, n, n+1)
	}
}

// manyViews sends 64 long messages to each side at a time, and receives them in another order.
func manyViews(r *Rank) {
	const most = 64
	length := func(i int) int { return 8<<10 + 97*i }
	var sent, got []*cohort.Request
	memory := make([][]int64, 2*most)
	for i := range 2 * most {
		to, tag := r.next, i
		if i%2 > 0 {
			to = r.prev
		}
		v, _ := numbered(length(i), r.Rank*2*most+i)
		sent = append(sent, must(cohort.IsendView(r.Comm, v, to, tag)))
	}
	for k := range 2 * most {
		i := (k*37 + 11) % (2 * most)
		from := r.prev
		if i%2 > 0 {
			from = r.next
		}
		var v cohort.View[int64]
		v, memory[i] = strided[int64](length(i) + i%3)
		got = append(got, must(cohort.IrecvView(r.Comm, v, from, i)))
	}
	r.OK(cohort.WaitAll(got...))
	r.OK(cohort.WaitAll(sent...))
	for i, all := range memory {
		from := r.prev
		if i%2 > 0 {
			from = r.next
		}
		received(r, all, length(i), from*2*most+i, fmt.Sprintf("message %d of %d", i, 2*most))
	}
}

// viewGoroutines has goroutines exchange views on one communicator, short ones and long ones.
func viewGoroutines(r *Rank) {
	if level := r.World.Caps().ThreadLevel; level != "single" && level != "funneled" {
		together(r, 8, 20, func(g, i int) error {
			m := []int{10, 8 << 10, 8<<10 + 1, 40000}[(g+i)%4]
			return exchange(r, kind[int64]{"int64", func(x int) int64 { return int64(x) }, -1}, sending[int64]("IsendView"), receiving[int64]([]string{"RecvView", "IrecvView"}[i%2]), m, m, g)
		})
	}
}

// viewClose closes a communicator while long views are sent and received on it. Their memory belongs to the program
// again when the requests are complete.
func viewClose(r *Rank) {
	if r.World.Caps().Library != "" {
		return // libraries may not free a communicator that is in use
	}
	const n = 1 << 18
	for tests := range 6 {
		d := must(r.Comm.Dup())
		from, sent := numbered(n, r.Rank)
		to, got := strided[int64](n)
		q := must(cohort.IsendView(d, from, r.next, 1))
		p := must(cohort.IrecvView(d, to, r.prev, 1))
		for range 1 << tests {
			q.Test()
		}
		q.Done() // from here on a goroutine waits for it
		p.Done()
		r.OK(d.Close())
		ended := func(q *cohort.Request, what string) bool {
			_, err := q.Wait()
			if err != nil && !errors.Is(err, cohort.ErrClosed) && !errors.Is(err, cohort.ErrPeerLost) {
				r.Errorf("%s that Close ended: %v", what, err)
			}
			return err == nil
		}
		ended(q, "a send")
		if ended(p, "a receive") {
			received(r, got, n, r.prev, "a message beside Close")
		}
		clear(sent)
		untouched(r, got)
	}
}

// untouched checks that nothing writes to memory any more.
func untouched(r *Rank, memory []int64) {
	for i := range memory {
		memory[i] = -int64(i)
	}
	r.OK(r.Comm.Barrier()) // the others have ended their operations too
	must2(r.Comm.Iprobe(cohort.AnySource, cohort.AnyTag))
	for i, x := range memory {
		if x != -int64(i) {
			r.Errorf("element %d was written after the receive had ended", i)
			return
		}
	}
}

// viewCut has the deadline of a sender or a receiver end in the middle of a long view, at different moments. It is
// an error of the other side too, and nothing is written afterwards.
func viewCut(r *Rank) {
	if r.World.Caps().Library != "" {
		return // a library goes on with a send whose receive was given up
	}
	const n = 1 << 18
	for i := range 12 {
		after := 50 * time.Microsecond << (i / 2)
		d := must(r.Comm.Dup())
		from, sent := numbered(n, r.Rank)
		to, got := strided[int64](n)
		ctx, cancel := context.WithTimeout(context.Background(), after)
		sends, recvs := d, d
		if i%2 == 0 {
			sends = d.WithContext(ctx)
		} else {
			recvs = d.WithContext(ctx)
		}
		send, recv := make(chan error, 1), make(chan error, 1)
		go func() {
			err := cohort.SendView(sends, from, r.next, 1)
			clear(sent)
			send <- err
		}()
		go func() {
			_, err := cohort.RecvView(recvs, to, r.prev, 1)
			recv <- err
		}()
		for range 2 {
			var what string
			var err error
			select {
			case err = <-send:
				what = "SendView"
			case err = <-recv:
				if what = "RecvView"; err == nil {
					received(r, got, n, r.prev, "a view whose deadline was near")
				}
			}
			if err == nil {
				continue
			}
			r.OK(d.Close()) // ends the other call and those of the other ranks
			if !errors.Is(err, cohort.ErrTimeout) && !errors.Is(err, cohort.ErrPeerLost) && !errors.Is(err, cohort.ErrClosed) && !errors.Is(err, cohort.ErrBroken) {
				r.Errorf("%s with a deadline after %v: %v", what, after, err)
			}
		}
		cancel()
		untouched(r, got)
		r.OK(d.Close())
	}
}

// oddAlltoall exchanges views of no elements, of the same memory, and long ones.
func oddAlltoall(r *Rank) {
	n := r.Size
	empty := make([]cohort.View[int64], n)
	r.OK(cohort.AlltoallView(r.Comm, empty, empty))
	for _, m := range []int{1, 1000, 200000 / n} {
		// The views of send are one: the same message goes to all.
		all := filled(2*m, func(i int) int64 { return int64(r.Rank)<<32 + int64(i) })
		send, recv := make([]cohort.View[int64], n), make([]cohort.View[int64], n)
		memory := make([][]int64, n)
		for j := range n {
			send[j] = cohort.ViewOf(all, cohort.Vector(m, 1, 2))
			recv[j], memory[j] = strided[int64](m)
		}
		// Its own message comes back to the same memory.
		recv[r.Rank], memory[r.Rank] = send[r.Rank], nil
		r.OK(cohort.AlltoallView(r.Comm, send, recv))
		for j, got := range memory {
			if j != r.Rank {
				received(r, got, m, j, fmt.Sprintf("AlltoallView of one view for all, of %d", m))
			}
		}
		same(r, all, func(i int) int64 { return int64(r.Rank)<<32 + int64(i) }, "AlltoallView of %d", m)
	}
}

// deadInView has a rank die while it receives long views from the others, or sends them.
func deadInView(receives bool) func(r *Rank) {
	return func(r *Rank) {
		const n = 1 << 20
		victim := r.Size - 1
		dieBy(r, victim, func(r *Rank) {
			var q *cohort.Request
			for other := range victim {
				v, _ := numbered(n, other)
				var err error
				if receives {
					q, err = cohort.IrecvView(r.World, v, other, 5)
				} else {
					q, err = cohort.IsendView(r.World, v, other, 5)
				}
				r.OK(err)
			}
			for range 20 { // a few pieces of some messages
				q.Test()
			}
			perish(r)
		}, func() error {
			v, _ := numbered(n, r.Rank)
			for { // the first message may be complete before the rank dies
				var err error
				if receives {
					err = cohort.SendView(r.World, v, victim, 5)
				} else {
					_, err = cohort.RecvView(r.World, v, victim, 5)
				}
				if err != nil {
					return err
				}
			}
		})
	}
}
