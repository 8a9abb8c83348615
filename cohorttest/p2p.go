package cohorttest

import (
	"errors"
	"runtime"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Point to point (MPI-4.1 chapter 3). With one rank, both neighbors in the ring are
// the rank itself, so these scenarios cover messages to oneself too.

func p2pLengths(r *Rank) {
	exchanges(r, float64s, []int{0, 2}, 0, 1, 3, 7, 64, 1000, 1024, 8191, long)
}

// p2pTypes sends elements of all sorts: in all ways those that do not divide the pieces in which views are packed, or of
// which no piece has room for one.
func p2pTypes(r *Rank) {
	exchanges(r, packeds, []int{0, 1, -1}, 0, 1, 3, 1000, 20000)
	exchanges(r, triples, []int{0, 2}, 1, 777, 90000)
	exchanges(r, kind[wide]{"wide", func(x int) wide { return wide{byte(x), 39999: byte(x)} }, wide{0xa5}}, []int{0, 1}, 5)
	plain(r, float32s)
	plain(r, int32s)
	plain(r, complex128s)
	plain(r, tickses)
	plain(r, paddeds)
	plain(r, kind[bool]{"bool", func(x int) bool { return x%2 == 0 }, true})
	plain(r, kind[[3]int16]{"[3]int16", func(x int) [3]int16 { return [3]int16{int16(x), 0, int16(-x)} }, [3]int16{1, 2, 3}})
}

type wide = [40000]byte

// p2pLimits sends messages as long as a limit of some backend, of one element less and of one more.
func p2pLimits(r *Rank) {
	around := func(size int) (lengths []int) {
		for _, limit := range []int{32 << 10, 64 << 10, 256 << 10} {
			lengths = append(lengths, limit/size-1, limit/size, limit/size+1)
		}
		return lengths
	}
	exchanges(r, uint8s, []int{0}, around(1)...)
	exchanges(r, triples, []int{0}, around(3)...)
	exchanges(r, kind[[4096]byte]{"page", func(x int) [4096]byte { return [4096]byte{byte(x), 4095: byte(x >> 8)} }, [4096]byte{1}}, []int{0}, around(4096)...)
}

// plain exchanges messages in the simplest way.
func plain[T comparable](r *Rank, k kind[T]) {
	for i, m := range []int{1, 5, 777} {
		r.OK(exchange(r, k, isends[T](), recvs[T](), m, m+i, 1))
	}
}

// synchronous checks that a synchronous send is not complete before a receive has
// matched it. That Ssend blocks so long is shown by its deadline (limits/send).
func synchronous(r *Rank) {
	for _, m := range []int{1, 30000} {
		req := must(cohort.Issend(r.Comm, make([]int32, m), r.next, 1))
		for range 50 {
			if _, done, err := req.Test(); done || err != nil {
				r.Errorf("Issend of %d is complete (%v) before its receive is posted", m, err)
				break
			}
			runtime.Gosched()
		}
		r.OK(r.Comm.Barrier())
		must(cohort.Recv(r.Comm, make([]int32, m), r.prev, 1))
		must(req.Wait())
	}
}

// truncation receives messages into buffers that are too short: ErrTruncate with both lengths in elements, nothing written
// outside the buffer, and the communicator stays usable. Most lengths are close to those at which MPI libraries
// go over to other protocols.
func truncation(r *Rank) {
	exchanges(r, uint8s, []int{-1, -50, -long}, 1, 100, 513, 4090, 5000, 8100, 8192, 8300, 16300, 65500, long)
	exchanges(r, packeds, []int{-1}, 5, 5000)
	// The length of this message is no multiple of an element's: the count is
	// undefined.
	q, p := must(cohort.Isend(r.Comm, make([]uint8, 7), r.next, 2)), must(cohort.Isend(r.Comm, make([]uint8, 7), r.next, 2))
	st := must(cohort.Recv(r.Comm, make([]int32, 2), r.prev, 2))
	equal(r, [2]int{st.Bytes(), cohort.Count[int32](st)}, [2]int{7, cohort.Undefined}, "7 bytes received as int32: bytes and count")
	_, st, err := cohort.RecvAppend[int32](r.Comm, nil, r.prev, 2)
	r.Is(err, cohort.ErrCount, "RecvAppend of 7 bytes as int32")
	equal(r, st.Bytes(), 7, "RecvAppend of 7 bytes as int32: bytes")
	r.OK(cohort.WaitAll(q, p))
	for _, n := range []int{7, 4*long + 1} {
		for _, gaps := range []int{1, 2} {
			v := func() cohort.View[int32] { return cohort.ViewOf(make([]int32, 2*n), cohort.Vector(n/4+1, 1, gaps)) }
			for name, recv := range map[string]func() (cohort.Status, error){
				"RecvView":  func() (cohort.Status, error) { return cohort.RecvView(r.Comm, v(), r.prev, 2) },
				"IrecvView": func() (cohort.Status, error) { return waited(cohort.IrecvView(r.Comm, v(), r.prev, 2))() },
				"SendrecvView": func() (cohort.Status, error) {
					return cohort.SendrecvView(r.Comm, v(), cohort.ProcNull, 0, v(), r.prev, 2)
				},
			} {
				q := must(cohort.Isend(r.Comm, make([]uint8, n), r.next, 2))
				st, err := recv()
				r.Is(err, cohort.ErrCount, "%s of %d bytes as int32, stride %d", name, n, gaps)
				equal(r, st.Bytes(), n, "%s of %d bytes as int32, stride %d: bytes", name, n, gaps)
				must(q.Wait())
			}
		}
	}
}

// elementTypes receives messages as another type than the sender's, in every form: ErrType names both types, and the
// communicator stays usable. Bytes match everything, and an empty message any type.
func elementTypes(r *Rank) {
	for _, n := range []int{1, 1000, long} {
		for _, w := range recvWays[int64]() {
			mistyped(r, make([]float64, n), "float64", w, make([]int64, n), "int64")
		}
		mistyped(r, make([]int32, n), "int32", recvs[uint32](), make([]uint32, n), "uint32")
		mistyped(r, make([][3]int16, n), "6-byte", recvs[[4]int16](), make([][4]int16, n), "8-byte")
		mistyped(r, make([]float64, n), "float64", recvs[struct{ X float64 }](), make([]struct{ X float64 }, n), "8-byte")
		mistyped(r, make([]cohort.Loc[int32], n), "Loc[int32]", recvs[cohort.Loc[float32]](), make([]cohort.Loc[float32], n), "Loc[float32]")
		matching(r, make([]byte, 8*n), r.next, make([]float64, n), r.prev)
		matching(r, make([]float64, n), r.next, make([]byte, 8*n), r.prev)
	}
	type meters float64
	matching(r, []meters{1}, r.next, []float64{0}, r.prev)
	matching(r, []int32{}, r.next, []float64{}, r.prev)
}

func matching[S, T any](r *Rank, send []S, next int, recv []T, prev int) {
	q := must(cohort.Isend(r.Comm, send, next, 2))
	must(cohort.Recv(r.Comm, recv, prev, 2))
	must(q.Wait())
}

func mistyped[S, T any](r *Rank, send []S, sent string, w way[T], recv []T, received string) {
	in := w.start(r.Comm, recv, r.prev, 1)
	q := must(cohort.Isend(r.Comm, send, r.next, 1))
	_, err := in()
	names := err != nil && strings.Contains(err.Error(), sent) && strings.Contains(err.Error(), received)
	if r.Comm.Backend() != "mpi" && !(errors.Is(err, cohort.ErrType) && names) { // mpi does not know what was sent
		r.Errorf("%s of %d elements of %s as %s: %v; want ErrType naming both", w.name, len(send), sent, received, err)
	}
	must(q.Wait())
}

// procNull sends to and receives from ProcNull (MPI-4.1 section 3.10).
func procNull(r *Rank) {
	none, buf := cohort.ProcNull, []int32{7, 8}
	for _, w := range sendWays[int32]() {
		_, err := w.start(r.Comm, buf, none, 1)()
		r.OK(err)
	}
	for _, w := range recvWays[int32]() {
		if w.any {
			continue
		}
		st, err := w.start(r.Comm, buf, none, 1)()
		r.OK(err)
		status[int32](r, st, none, cohort.AnyTag, 0, "%s from ProcNull", w.name)
		equal(r, [2]int32(buf), [2]int32{7, 8}, "%s from ProcNull: the buffer", w.name)
	}
	st, found := must2(r.Comm.Iprobe(none, 3))
	equal(r, found, true, "Iprobe of ProcNull")
	status[int32](r, st, none, cohort.AnyTag, 0, "Iprobe of ProcNull")
}

// p2pLarge sends messages that are larger than a backend's buffers, in both directions
// at once.
func p2pLarge(r *Rank) {
	m := r.pick(1<<20, 8<<20) + 1
	for _, names := range [][2]string{{"Send", "Irecv"}, {"Issend", "IrecvView"}, {"IsendView", "RecvView"}, {"Isend", "Recv"}} {
		r.OK(exchange(r, uint8s, sending[uint8](names[0]), receiving[uint8](names[1]), m, m, 1))
	}
}

// p2pInPlace exchanges messages around the ring with the same slice as send and recv
// (MPI_Sendrecv_replace, MPI-4.1 section 3.10): each rank receives what its neighbor held before.
// Then it gives that back. The lengths cover eager messages and rendezvous.
func p2pInPlace(r *Rank) {
	for _, m := range []int{0, 1, 3, 1000, 8191, long} {
		of := func(rank int) *buffer[float64] {
			b := newBuffer(float64s, m)
			for i := range b.data {
				b.data[i] = float64s.elem(value(m, rank, i))
			}
			return b
		}
		buf := of(r.Rank)
		status[float64](r, must(cohort.Sendrecv(r.Comm, buf.data, r.next, m, buf.data, r.prev, m)), r.prev, m, m, "in place")
		buf.is(r, of(r.prev), "in place, %d elements", m)
		q := must(cohort.Isendrecv(r.Comm, buf.data, r.prev, m, buf.data, r.next, m))
		status[float64](r, must(q.Wait()), r.next, m, m, "Isendrecv in place")
		buf.is(r, of(r.Rank), "Isendrecv in place, %d elements", m)
	}
	// Without one of the partners there is no exchange.
	x := []int32{int32(r.Rank)}
	q := must(cohort.Irecv(r.Comm, make([]int32, 1), r.prev, 7))
	st := must(cohort.Sendrecv(r.Comm, x, r.next, 7, x, cohort.ProcNull, 7))
	equal(r, [2]int{st.Source, int(x[0])}, [2]int{cohort.ProcNull, r.Rank}, "in place from ProcNull: source and element")
	must(q.Wait())
	q = must(cohort.Isend(r.Comm, x, r.next, 8))
	y := []int32{-1}
	must(cohort.Sendrecv(r.Comm, y, cohort.ProcNull, 8, y, r.prev, 8))
	equal(r, y[0], int32(r.prev), "in place to ProcNull")
	must(q.Wait())
}
