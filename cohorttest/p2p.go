package cohorttest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Point to point (MPI-4.1 chapter 3). With one rank, both neighbors in the ring are
// the rank itself, so these scenarios cover messages to oneself too.

func p2pScenarios() []scenario {
	return []scenario{
		{name: "p2p/lengths", body: p2pLengths},
		{name: "p2p/types", body: p2pTypes},
		{name: "p2p/order", body: p2pOrder},
		{name: "p2p/overtaking", body: p2pOvertaking},
		{name: "p2p/any-source-fair", sizes: atLeast(3), body: anySourceFair},
		{name: "p2p/synchronous", body: synchronous},
		{name: "p2p/truncation", body: truncation},
		{name: "p2p/too-long", sizes: atLeast(2), body: tooLong},
		{name: "p2p/element-types", body: elementTypes},
		{name: "p2p/in-place", body: p2pInPlace},
		{name: "p2p/proc-null", body: procNull},
		{name: "p2p/all-to-all-unordered", body: allToAllUnordered},
		{name: "p2p/goroutines", body: goroutines},
		{name: "p2p/persistent", turns: true, body: p2pPersistent},
		{name: "p2p/large", body: p2pLarge},
	}
}

// ring returns the neighbors of a rank.
func (r *Rank) ring() (next, prev int) {
	return (r.Rank + 1) % r.Size, (r.Rank + r.Size - 1) % r.Size
}

// p2pLengths sends messages of every length around the ring, with blocking and
// nonblocking calls in all combinations that cannot deadlock.
func p2pLengths(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for _, m := range []int{0, 1, 3, 7, 64, 1000, 1024, 8191, long} {
		want := newBuffer(float64s, m)
		for i := range want.data {
			want.data[i] = float64s.elem(value(m, prev, i))
		}
		send := newBuffer(float64s, m)
		for i := range send.data {
			send.data[i] = float64s.elem(value(m, r.Rank, i))
		}
		recv := newBuffer(float64s, m)
		check := func(what string, st cohort.Status, err error, tag int) {
			r.OK(err)
			if st.Source != prev || st.Tag != tag || cohort.Count[float64](st) != m || st.Bytes() != 8*m {
				r.Errorf("%s of %d: status %+v, want source %d, tag %d, count %d", what, m, st, prev, tag, m)
			}
			if i, ok := recv.diff(want, nil); !ok {
				r.Errorf("%s of %d: element %d is %v, want %v", what, m, i, recv.all[i+guards], want.all[i+guards])
			}
			recv.clear()
		}

		req, err := cohort.Irecv(c, recv.data, prev, 1)
		r.OK(err)
		r.OK(cohort.Send(c, send.data, next, 1))
		st, err := req.Wait()
		check("Send to a posted receive", st, err, 1)

		req = must(cohort.Isend(c, send.data, next, 2))
		st, err = cohort.Recv(c, recv.data, prev, 2)
		check("Recv from Isend", st, err, 2)
		must(req.Wait())

		req = must(cohort.Irecv(c, recv.data, cohort.AnySource, cohort.AnyTag))
		sreq := must(cohort.Issend(c, send.data, next, 3))
		st, err = req.Wait()
		check("Issend to any source, any tag", st, err, 3)
		must(sreq.Wait())

		st, err = cohort.Sendrecv(c, send.data, next, 4, recv.data, prev, 4)
		check("Sendrecv", st, err, 4)

		req = must(cohort.Isendrecv(c, send.data, next, 4, recv.data, prev, 4))
		st, err = req.Wait()
		check("Isendrecv", st, err, 4)

		req = must(cohort.Isend(c, send.data, next, 5))
		got, st := must2(cohort.RecvAppend[float64](c, nil, prev, 5))
		if len(got) != m {
			r.Errorf("RecvAppend returns %d elements, want %d", len(got), m)
		} else {
			copy(recv.data, got)
		}
		check("RecvAppend", st, nil, 5)
		must(req.Wait())
	}
}

func p2pTypes(r *Rank) {
	exchange(r, float64s)
	exchange(r, float32s)
	exchange(r, int32s)
	exchange(r, uint8s)
	exchange(r, complex128s)
	exchange(r, tickses)
	exchange(r, packeds)
	exchange(r, paddeds)
	exchange(r, triples)
	exchange(r, kind[bool]{"bool", func(x int) bool { return x%2 == 0 }, true})
	exchange(r, kind[[3]int16]{"[3]int16", func(x int) [3]int16 { return [3]int16{int16(x), 0, int16(-x)} }, [3]int16{1, 2, 3}})
}

func exchange[T comparable](r *Rank, k kind[T]) {
	next, prev := r.ring()
	for _, m := range []int{1, 5, 777} {
		send, recv, want := newBuffer(k, m), newBuffer(k, m), newBuffer(k, m)
		for i := range m {
			send.data[i], want.data[i] = k.elem(value(m, r.Rank, i)), k.elem(value(m, prev, i))
		}
		if st := must(cohort.Sendrecv(r.Comm, send.data, next, m, recv.data, prev, m)); cohort.Count[T](st) != m {
			r.Errorf("%d %s: count %d", m, k.name, cohort.Count[T](st))
		}
		if i, ok := recv.diff(want, nil); !ok {
			r.Errorf("%d %s: element %d is %v, want %v", m, k.name, i, recv.all[i+guards], want.all[i+guards])
		}
	}
}

// synchronous checks that a synchronous send is not complete before a receive has
// matched it.
func synchronous(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for _, m := range []int{1, 30000} {
		req := must(cohort.Issend(c, make([]int32, m), next, 1))
		for range 50 {
			if _, done, err := req.Test(); done || err != nil {
				r.Errorf("Issend of %d is complete (%v) before its receive is posted", m, err)
				break
			}
			runtime.Gosched()
		}
		r.OK(c.Barrier())
		must(cohort.Recv(c, make([]int32, m), prev, 1))
		must(req.Wait())
	}
	// Ssend blocks until the receive: the message that follows it arrives only
	// afterwards.
	if r.Size < 2 {
		return
	}
	flag := make([]int32, 1)
	switch r.Rank {
	case 0:
		r.OK(cohort.Ssend(c, []int32{5}, 1, 2))
		r.OK(cohort.Send(c, []int32{6}, 1, 3)) // Ssend has returned
	case 1:
		for range 200 {
			if _, found := must2(c.Iprobe(0, 3)); found {
				r.Errorf("Ssend has returned before its receive was posted")
				break
			}
			runtime.Gosched()
		}
		must(cohort.Recv(c, flag, 0, 2))
		must(cohort.Recv(c, flag, 0, 3))
		if flag[0] != 6 {
			r.Errorf("got %d after Ssend, want 6", flag[0])
		}
	}
}

// truncation receives messages into buffers that are too short, from a named rank
// and from any: ErrTruncate, nothing written outside the buffer, and the
// communicator stays usable. Lengths around 8 kB are those at which MPI libraries
// go over to other protocols.
func truncation(r *Rank) {
	lengths := []int{1, 2, 100, 5000, 8100, 8192, 8300, long}
	rows := covering([]int{len(lengths), 3, 2, 2, 2}) // length, room, received before or after, any source, any tag
	for _, row := range rows {
		m := lengths[row[0]]
		truncate(r, m, []int{0, m / 2, m - 1}[row[1]], row[2] == 0, row[3] == 1, row[4] == 1)
	}
	// The length of this message is no multiple of an element's: the count is
	// undefined.
	c := r.Comm
	next, prev := r.ring()
	sreq := must(cohort.Isend(c, make([]uint8, 7), next, 2))
	if st := must(cohort.Recv(c, make([]int32, 2), prev, 2)); st.Bytes() != 7 || cohort.Count[int32](st) != cohort.Undefined {
		r.Errorf("7 bytes received as int32: %d bytes, count %d, want Undefined (%d)", st.Bytes(), cohort.Count[int32](st), cohort.Undefined)
	}
	must(sreq.Wait())
}

// truncate sends m bytes around the ring into room for less, with the receive
// posted before the message is sent, or called when the message has arrived.
func truncate(r *Rank, m, room int, posted, anySource, anyTag bool) {
	c := r.Comm
	next, prev := r.ring()
	source, tag := prev, 1
	if anySource {
		source = cohort.AnySource
	}
	if anyTag {
		tag = cohort.AnyTag
	}
	what := fmt.Sprintf("%d bytes into %d, posted before %v, source %d, tag %d", m, room, posted, source, tag)
	recv, want := newBuffer(uint8s, room), newBuffer(uint8s, room)
	send := filled(m, func(i int) uint8 { return uint8s.elem(value(m, r.Rank, i)) })
	for i := range want.data {
		want.data[i] = uint8s.elem(value(m, prev, i))
	}
	var req *cohort.Request
	var err error
	if posted {
		req = must(cohort.Irecv(c, recv.data, source, tag))
	}
	sreq := must(cohort.Isend(c, send, next, 1))
	var st cohort.Status
	if posted {
		st, err = req.Wait()
	} else {
		must(c.Probe(source, tag))
		st, err = cohort.Recv(c, recv.data, source, tag)
	}
	if r.Is(err, cohort.ErrTruncate, "%s", what).ok && (st.Source != prev || st.Tag != 1) {
		r.Errorf("%s: status %+v, want source %d, tag 1", what, st, prev)
	}
	// Which part of the message is written is not specified, but it is the message's
	// and inside the buffer.
	image := newBuffer(uint8s, room)
	copy(image.data, recv.data)
	if i, ok := recv.diff(image, nil); !ok {
		r.Errorf("%s: byte %d, outside the buffer, was written", what, i)
	}
	for i, x := range recv.data {
		if x != want.data[i] && x != uint8s.guard {
			r.Errorf("%s: byte %d is %#x, neither what was sent nor what was there", what, i, x)
			break
		}
	}
	must(sreq.Wait())
}

// elementTypes receives messages as another type than the sender's, in every form: ErrType names both types, and the
// communicator stays usable. Bytes match everything, and an empty message any type.
func elementTypes(r *Rank) {
	next, prev := r.ring()
	for _, n := range []int{1, 1000, long} {
		mistyped(r, make([]float64, n), "float64", next, make([]int64, n), "int64", prev)
		mistyped(r, make([]int32, n), "int32", next, make([]uint32, n), "uint32", prev)
		mistyped(r, make([][3]int16, n), "6-byte", next, make([][4]int16, n), "8-byte", prev)
		mistyped(r, make([]float64, n), "float64", next, make([]struct{ X float64 }, n), "8-byte", prev)
		mistyped(r, make([]cohort.Loc[int32], n), "Loc[int32]", next, make([]cohort.Loc[float32], n), "Loc[float32]", prev)
		matching(r, make([]byte, 8*n), next, make([]float64, n), prev)
		matching(r, make([]float64, n), next, make([]byte, 8*n), prev)
	}
	type meters float64
	matching(r, []meters{1}, next, []float64{0}, prev)
	matching(r, []int32{}, next, []float64{}, prev)
}

func matching[S, T any](r *Rank, send []S, next int, recv []T, prev int) {
	q := must(cohort.Isend(r.Comm, send, next, 2))
	must(cohort.Recv(r.Comm, recv, prev, 2))
	must(q.Wait())
}

func second[T any](_ T, err error) error { return err }

func mistyped[S, T any](r *Rank, send []S, sent string, next int, recv []T, received string, prev int) {
	c := r.Comm
	for _, form := range []struct {
		name string
		recv func() error
	}{
		{"Recv", func() error { return second(cohort.Recv(c, recv, prev, 1)) }},
		{"Recv of a message that has arrived", func() error {
			must(c.Probe(prev, 1))
			return second(cohort.Recv(c, recv, cohort.AnySource, cohort.AnyTag))
		}},
		{"Irecv", func() error { return wait(cohort.Irecv(c, recv, prev, 1)) }},
		{"Sendrecv", func() error { return second(cohort.Sendrecv(c, recv, cohort.ProcNull, 0, recv, prev, 1)) }},
		{"Isendrecv", func() error { return wait(cohort.Isendrecv(c, recv, cohort.ProcNull, 0, recv, prev, 1)) }},
		{"RecvAppend", func() error { return errorOf(cohort.RecvAppend[T](c, nil, prev, 1)) }},
		{"MessageRecv", func() error {
			m, _ := must2(c.Mprobe(prev, 1))
			return second(cohort.MessageRecv(m, recv))
		}},
		{"RecvInit", func() error {
			p := must(cohort.RecvInit(c, recv, prev, 1))
			r.OK(p.Start())
			_, err := p.Wait()
			r.OK(p.Close())
			return err
		}},
		{"RecvView", func() error {
			apart := cohort.ViewOf(make([]T, 2*len(recv)), cohort.Vector(len(recv), 1, 2))
			return second(cohort.RecvView(c, apart, prev, 1))
		}},
		{"IrecvView", func() error {
			apart := cohort.ViewOf(make([]T, 2*len(recv)), cohort.Vector(len(recv), 1, 2))
			return wait(cohort.IrecvView(c, apart, prev, 1))
		}},
	} {
		q := must(cohort.Isend(c, send, next, 1))
		err := form.recv()
		names := err != nil && strings.Contains(err.Error(), sent) && strings.Contains(err.Error(), received)
		if c.Backend() != "mpi" && !(errors.Is(err, cohort.ErrType) && names) { // mpi does not know what was sent
			r.Errorf("%s of %d elements of %s as %s: %v; want ErrType naming both", form.name, len(send), sent, received, err)
		}
		must(q.Wait())
	}
}

// procNull sends to and receives from ProcNull (MPI-4.1 section 3.10).
func procNull(r *Rank) {
	c := r.Comm
	buf := []int32{7, 8}
	empty := func(what string, st cohort.Status, err error) {
		r.OK(err)
		if st.Source != cohort.ProcNull || st.Tag != cohort.AnyTag || st.Bytes() != 0 {
			r.Errorf("%s: status %+v (%d bytes), want source ProcNull, tag AnyTag, no bytes", what, st, st.Bytes())
		}
		if buf[0] != 7 || buf[1] != 8 {
			r.Errorf("%s: the buffer was written: %v", what, buf)
		}
	}
	r.OK(cohort.Send(c, buf, cohort.ProcNull, 1))
	r.OK(cohort.Ssend(c, buf, cohort.ProcNull, 1))
	st, err := cohort.Recv(c, buf, cohort.ProcNull, 1)
	empty("Recv", st, err)
	req := must(cohort.Isend(c, buf, cohort.ProcNull, 1))
	must(req.Wait())
	req = must(cohort.Irecv(c, buf, cohort.ProcNull, cohort.AnyTag))
	st, err = req.Wait()
	empty("Irecv", st, err)
	st, err = c.Probe(cohort.ProcNull, 3)
	empty("Probe", st, err)
	st, found, err := c.Iprobe(cohort.ProcNull, 3)
	empty("Iprobe", st, err)
	if !found {
		r.Errorf("Iprobe of ProcNull finds nothing")
	}
	st, err = cohort.Sendrecv(c, buf, cohort.ProcNull, 1, buf[:0], cohort.ProcNull, 1)
	empty("Sendrecv", st, err)
	req = must(cohort.Isendrecv(c, buf, cohort.ProcNull, 1, buf[:0], cohort.ProcNull, 1))
	st, err = req.Wait()
	empty("Isendrecv", st, err)
	// A chain with open ends, as in a grid without periods.
	next, prev := r.Rank+1, r.Rank-1
	if next == r.Size {
		next = cohort.ProcNull
	}
	if prev < 0 {
		prev = cohort.ProcNull
	}
	got := []int32{-1}
	must(cohort.Sendrecv(c, []int32{int32(r.Rank)}, next, 4, got, prev, 4))
	if want := int32(r.Rank - 1); got[0] != want { // rank 0 receives nothing: -1 stays
		r.Errorf("chain: got %d, want %d", got[0], want)
	}
}

func p2pPersistent(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for _, m := range []int{0, 1, 500, 20000} {
		send, recv := make([]int32, m), make([]int32, m)
		s := must(cohort.SendInit(c, send, next, 6))
		if m%1000 == 500 {
			s = must(cohort.SsendInit(c, send, next, 6))
		}
		p := must(cohort.RecvInit(c, recv, prev, 6))
		for k := range 5 {
			for i := range send {
				send[i] = int32(r.Rank*10000 + k*100 + i%100)
			}
			r.OK(p.Start())
			r.OK(s.Start())
			var st cohort.Status
			for done := false; !done; runtime.Gosched() {
				st, done = must2(p.Test())
			}
			must(s.Wait())
			if st.Source != prev || st.Tag != 6 || cohort.Count[int32](st) != m {
				r.Errorf("%d elements, round %d: status %+v", m, k, st)
			}
			same(r, recv, func(i int) int32 { return int32(prev*10000 + k*100 + i%100) }, "%d elements, round %d", m, k)
		}
		r.OK(s.Close())
		r.OK(p.Close())
	}
}

// p2pLarge sends messages that are larger than a backend's buffers, in both directions
// at once.
func p2pLarge(r *Rank) {
	next, prev := r.ring()
	m := 8 << 20
	if r.Short {
		m = 1 << 20
	}
	send, recv := make([]uint8, m+3), make([]uint8, m+3)
	for i := range send {
		send[i] = byte(i>>12 + i + r.Rank)
	}
	if st := must(cohort.Sendrecv(r.Comm, send[1:m+2], next, 1, recv[2:], prev, 1)); st.Bytes() != m+1 {
		r.Errorf("%d bytes, want %d", st.Bytes(), m+1)
	}
	if recv[0] != 0 || recv[1] != 0 {
		r.Errorf("bytes before the buffer were written")
	}
	for i, x := range recv[2:] {
		if j := i + 1; x != byte(j>>12+j+prev) {
			r.Errorf("byte %d is %d, want %d", i, x, byte(j>>12+j+prev))
			break
		}
	}
}
