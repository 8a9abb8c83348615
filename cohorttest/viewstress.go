package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
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
	kinds := []func(r *Rank, limit, more, how int){
		func(r *Rank, limit, more, how int) {
			limitView(r, kind[byte]{"byte", func(x int) byte { return byte(x) }, 0xa5}, limit, more, how)
		},
		func(r *Rank, limit, more, how int) { limitView(r, int32s, limit, more, how) },
		func(r *Rank, limit, more, how int) { limitView(r, triples, limit, more, how) },
		func(r *Rank, limit, more, how int) {
			limitView(r, kind[[4096]byte]{"page", func(x int) [4096]byte { return [4096]byte{byte(x), 4095: byte(x >> 8)} }, [4096]byte{1}}, limit, more, how)
		},
	}
	limits := []int{32 << 10, 64 << 10, 256 << 10}
	for _, row := range r.rows(len(kinds), len(limits), 3, 4) {
		kinds[row[0]](r, limits[row[1]], row[2]-1, row[3])
	}
}

// limitView sends limit bytes and more elements: from a slice if how has bit 0, and to a slice if it has bit 1.
func limitView[T comparable](r *Rank, k kind[T], limit, more, how int) {
	next, prev := r.ring()
	n := limit/int(reflect.TypeFor[T]().Size()) + more
	from, sent := strided[T](n)
	to, got := strided[T](n)
	if how&1 > 0 {
		from = cohort.ViewOf(sent, cohort.Vector(1, n, n))
	}
	if how&2 > 0 {
		to = cohort.ViewOf(got, cohort.Vector(1, n, n))
	}
	mine, theirs := make([]T, n), make([]T, n)
	for i := range n {
		mine[i], theirs[i] = k.elem(value(n, r.Rank, i)), k.elem(value(n, prev, i))
	}
	r.OK(from.Unpack(mine))
	q := must(cohort.IrecvView(r.Comm, to, prev, how))
	r.OK(cohort.SendView(r.Comm, from, next, how))
	st := must(q.Wait())
	r.OK(to.Pack(mine))
	if !slices.Equal(mine, theirs) || cohort.Count[T](st) != n {
		r.Errorf("%d elements of %s, way %d: status %+v, or other elements", n, k.name, how, st)
	}
}

// viewChain passes long views along a line of ranks, whose ends have ProcNull for a neighbor.
func viewChain(r *Rank) {
	const n = 40000
	up, down := r.Rank+1, r.Rank-1
	if up == r.Size {
		up = cohort.ProcNull
	}
	if down < 0 {
		down = cohort.ProcNull
	}
	from, _ := numbered(n, r.Rank)
	for _, form := range []form{blocking, nonblocking} {
		to, got := strided[int64](n)
		st, err := cohort.SendrecvView(r.Comm, from, up, 1, to, down, 1)
		if form == nonblocking {
			clear(got)
			var q, p *cohort.Request
			q = must(cohort.IrecvView(r.Comm, to, down, 1))
			p = must(cohort.IsendView(r.Comm, from, up, 1))
			must(p.Wait())
			st, err = q.Wait()
		}
		r.OK(err)
		count := 0
		if down != cohort.ProcNull {
			count = n
		}
		received(r, got, count, down, string(form)+", along a line")
		if st.Source != down || cohort.Count[int64](st) != count {
			r.Errorf("%s: status %+v, want %d elements from %d", form, st, count, down)
		}
	}
	r.OK(cohort.SendView(r.Comm, from, cohort.ProcNull, 1))
	must(cohort.RecvView(r.Comm, from, cohort.ProcNull, 1))
}

// manyViews sends 64 long messages to each side at a time, and receives them in another order.
func manyViews(r *Rank) {
	const most = 64
	next, prev := r.ring()
	length := func(i int) int { return 8<<10 + 97*i }
	var sent, got []*cohort.Request
	memory := make([][]int64, 2*most)
	for i := range 2 * most {
		to, tag := next, i
		if i%2 > 0 {
			to = prev
		}
		v, _ := numbered(length(i), r.Rank*2*most+i)
		q := must(cohort.IsendView(r.Comm, v, to, tag))
		sent = append(sent, q)
	}
	for k := range 2 * most {
		i := (k*37 + 11) % (2 * most)
		from := prev
		if i%2 > 0 {
			from = next
		}
		var v cohort.View[int64]
		v, memory[i] = strided[int64](length(i) + i%3)
		q := must(cohort.IrecvView(r.Comm, v, from, i))
		got = append(got, q)
	}
	r.OK(cohort.WaitAll(got...))
	r.OK(cohort.WaitAll(sent...))
	for i, all := range memory {
		from := prev
		if i%2 > 0 {
			from = next
		}
		received(r, all, length(i), from*2*most+i, fmt.Sprintf("message %d of %d", i, 2*most))
	}
}

// viewGoroutines has goroutines exchange views on one communicator, short ones and long ones.
func viewGoroutines(r *Rank) {
	if level := r.World.Caps().ThreadLevel; level == "single" || level == "funneled" {
		return
	}
	next, prev := r.ring()
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for g := range cap(errs) {
		all.Go(func() {
			for i := range 20 {
				n := []int{10, 8 << 10, 8<<10 + 1, 40000}[(g+i)%4]
				from, _ := numbered(n, r.Rank*1000+g*100+i)
				to, memory := strided[int64](n)
				if _, err := cohort.SendrecvView(r.Comm, from, next, g, to, prev, g); err != nil {
					errs <- err
					return
				}
				received(r, memory, n, prev*1000+g*100+i, fmt.Sprintf("goroutine %d, message %d", g, i))
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		r.OK(err)
	default:
	}
}

// viewClose closes a communicator while long views are sent and received on it. Their memory belongs to the program
// again when the requests are complete.
func viewClose(r *Rank) {
	if r.World.Caps().Library != "" {
		return // libraries may not free a communicator that is in use
	}
	const n = 1 << 18
	next, prev := r.ring()
	for tests := range 6 {
		d := must(r.Comm.Dup())
		from, sent := numbered(n, r.Rank)
		to, got := strided[int64](n)
		q := must(cohort.IsendView(d, from, next, 1))
		p := must(cohort.IrecvView(d, to, prev, 1))
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
			received(r, got, n, prev, "a message beside Close")
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
	next, prev := r.ring()
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
			err := cohort.SendView(sends, from, next, 1)
			clear(sent)
			send <- err
		}()
		go func() {
			_, err := cohort.RecvView(recvs, to, prev, 1)
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
					received(r, got, n, prev, "a view whose deadline was near")
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
