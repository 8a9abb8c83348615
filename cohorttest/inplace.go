package cohorttest

import "github.com/cohort-hpc/cohort"

// p2pInPlace exchanges messages around the ring with the same slice as send and recv
// (MPI_Sendrecv_replace, MPI-4.1 section 3.10): each rank receives what its neighbor held before.
// Then it gives that back. The lengths cover eager messages and rendezvous.
func p2pInPlace(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for _, m := range []int{0, 1, 3, 1000, 8191, long} {
		buf, want := newBuffer(float64s, m), newBuffer(float64s, m)
		for i := range buf.data {
			buf.data[i] = float64s.elem(value(m, r.Rank, i))
			want.data[i] = float64s.elem(value(m, prev, i))
		}
		st, err := cohort.Sendrecv(c, buf.data, next, m, buf.data, prev, m)
		r.OK(err)
		if st.Source != prev || st.Tag != m || cohort.Count[float64](st) != m {
			r.Errorf("in place, %d elements: status %+v, want source %d, tag %d", m, st, prev, m)
		}
		if i, ok := buf.diff(want, nil); !ok {
			r.Errorf("in place, %d elements: element %d is %v, want %v", m, i, buf.all[i+guards], want.all[i+guards])
		}
		// Back the other way, nonblocking.
		req := must(cohort.Isendrecv(c, buf.data, prev, m, buf.data, next, m))
		if st, err = req.Wait(); st.Source != next || cohort.Count[float64](st) != m {
			r.Errorf("Isendrecv in place, %d elements: status %+v, want source %d", m, st, next)
		}
		r.OK(err)
		for i := range want.data {
			want.data[i] = float64s.elem(value(m, r.Rank, i))
		}
		if i, ok := buf.diff(want, nil); !ok {
			r.Errorf("Isendrecv in place, %d elements: element %d is %v, want %v", m, i, buf.all[i+guards], want.all[i+guards])
		}
	}

	// Without one of the partners there is no exchange.
	x := []int32{int32(r.Rank)}
	req, err := cohort.Irecv(c, make([]int32, 1), prev, 7)
	r.OK(err)
	if st := must(cohort.Sendrecv(c, x, next, 7, x, cohort.ProcNull, 7)); st.Source != cohort.ProcNull || x[0] != int32(r.Rank) {
		r.Errorf("in place from ProcNull: status %+v, the element is %d, want %d", st, x[0], r.Rank)
	}
	must(req.Wait())
	req = must(cohort.Isend(c, []int32{int32(r.Rank)}, next, 8))
	if _, err = cohort.Sendrecv(c, x, cohort.ProcNull, 8, x, prev, 8); err != nil || x[0] != int32(prev) {
		r.Errorf("in place to ProcNull: %d, %v, want %d", x[0], err, prev)
	}
	must(req.Wait())
}
