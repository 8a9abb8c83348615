package cohorttest

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Errors count in elements, as the caller does, and say the same on every backend.

const sent, room = 5, 3 // elements

// says checks that an error's text contains one of the given ones.
func says(r *Rank, what string, err error, texts ...string) {
	for _, text := range texts {
		if err != nil && strings.Contains(err.Error(), text) {
			return
		}
	}
	r.Errorf("%s: %v; want %q", what, err, texts[0])
}

// tooLong receives messages that are longer than the buffer.
func tooLong(r *Rank) {
	next, prev := r.ring()
	buf := make([]float64, room)
	for _, x := range []struct {
		name    string
		receive func() error
	}{
		{"Recv", func() error { _, err := cohort.Recv(r.Comm, buf, prev, 7); return err }},
		{"Irecv", func() error { return wait(cohort.Irecv(r.Comm, buf, prev, 7)) }},
		{"IrecvView", func() error {
			return wait(cohort.IrecvView(r.Comm, cohort.ViewOf(buf, cohort.Vector(room, 1, 1)), prev, 7))
		}},
		{"Sendrecv", func() error { return errorOf(cohort.Sendrecv(r.Comm, buf, cohort.ProcNull, 0, buf, prev, 7)) }},
		{"Isendrecv", func() error { return wait(cohort.Isendrecv(r.Comm, buf, cohort.ProcNull, 0, buf, prev, 7)) }},
		{"MessageRecv", func() error {
			m, _ := must2(r.Comm.Mprobe(prev, 7))
			return errorOf(cohort.MessageRecv(m, buf))
		}},
		{"RecvInit", func() error {
			p := must(cohort.RecvInit(r.Comm, buf, prev, 7))
			r.OK(p.Start())
			_, err := p.Wait()
			r.OK(p.Close())
			return err
		}},
	} {
		send := must(cohort.Isend(r.Comm, make([]float64, sent), next, 7))
		from := fmt.Sprintf("the message from rank %d with tag 7 ", prev)
		says(r, x.name, x.receive(), fmt.Sprintf("%shas %d elements, the buffer %d", from, sent, room),
			fmt.Sprintf("%sis longer than the buffer of %d elements", from, room)) // with a library that does not report the length
		must(send.Wait())
	}
}

// sentTooMuch returns the text of a mismatch, and the one of a library that does not report the length.
func sentTooMuch(from, to int) []string {
	return []string{fmt.Sprintf("rank %d sent %d elements, rank %d expects %d", from, sent, to, room),
		fmt.Sprintf("rank %d sent more than the %d elements that rank %d expects", from, room, to)}
}

// mismatchedLengths has the last rank send rank 0 more than that expects, and then has ranks pass different counts.
func mismatchedLengths(r *Rank) {
	n, last := r.Size, r.Size-1
	v := func(k int) []float64 { return make([]float64, k) }
	counts := func(from, to, other int) []int { // of the blocks from or to all ranks
		return each(n, func(i int) int {
			if r.Rank == from && i == to {
				return other
			}
			return room
		})
	}
	all := v(n * (sent + room))
	for _, x := range []struct {
		name string
		call func(c *cohort.Comm) error
		text []string
	}{
		{"Gatherv", func(c *cohort.Comm) error {
			return cohort.Gatherv(c, v(counts(last, 0, sent)[0]), all[:n*room], counts(-1, 0, 0), each(n, func(i int) int { return i * room }), 0)
		}, sentTooMuch(last, 0)},
		{"Scatterv", func(c *cohort.Comm) error {
			return cohort.Scatterv(c, v(n*room+sent-room), counts(0, last, sent), each(n, func(i int) int { return i * room }), v(room), 0)
		}, sentTooMuch(0, last)},
		{"Alltoallv", func(c *cohort.Comm) error {
			displs := each(n, func(i int) int { return i * sent })
			return cohort.Alltoallv(c, v(n*sent), counts(last, 0, sent), displs, all, counts(-1, 0, 0), displs)
		}, sentTooMuch(last, 0)},
		{"Allgather", func(c *cohort.Comm) error {
			k := counts(last, 0, sent)[0]
			return cohort.Allgather(c, v(k), v(n*k))
		}, []string{fmt.Sprintf("rank 0 called Allgather(type float64, count %d), rank %d called Allgather(type float64, count %d)", room, last, sent)}},
		{"Allgatherv", func(c *cohort.Comm) error {
			mine := counts(last, 0, sent)
			return cohort.Allgatherv(c, v(mine[r.Rank]), all, mine, each(n, func(i int) int { return i * sent }))
		}, []string{fmt.Sprintf("counts with the sum %d)", n*room+sent-room)}},
		{"ReduceScatter", func(c *cohort.Comm) error {
			mine := counts(-1, 0, 0)
			if r.Rank == last {
				mine[0], mine[1] = mine[0]-1, mine[1]+1
			}
			err := cohort.ReduceScatter(c, v(n*room), v(mine[r.Rank]), mine, cohort.Sum)
			says(r, "ReduceScatter", err, fmt.Sprintf("; rank %d passed the counts %v", r.Rank, mine))
			return err
		}, []string{"; the counts differ"}},
	} {
		c := must(r.Comm.Dup())
		err := x.call(c)
		if m := r.mismatch(c, err, x.name); m.err != nil {
			says(r, x.name, m.err, x.text...)
		}
		r.OK(c.Close())
	}
}
