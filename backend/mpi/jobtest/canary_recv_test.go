//go:build cgo && linux

package jobtest

import (
	"bytes"
	"errors"

	"github.com/cohort-hpc/cohort"
)

// send starts a send and returns the function that waits for it.
func (x *exchange) send(m *message, any bool) func() error {
	buf := x.sent(m.id, m.size)
	start := cohort.Isend[byte]
	switch {
	case m.send == 1:
		start = cohort.Issend[byte]
	case m.send == 2 && any:
		done := make(chan error, 1)
		go func() { done <- cohort.Send(x.w, buf, m.to, m.tag) }()
		return func() error { return <-done }
	case m.send == 3:
		op, err := cohort.SendInit(x.w, buf, m.to, m.tag)
		if err == nil {
			err = op.Start()
		}
		return func() error {
			if err != nil {
				return err
			}
			_, err := op.Wait()
			return errors.Join(err, op.Close())
		}
	}
	q, err := start(x.w, buf, m.to, m.tag)
	return func() error {
		if err != nil {
			return err
		}
		return second(q.Wait())
	}
}

// post starts a receive and returns the function that ends it.
func (x *exchange) post(m *message, source, tag int, all []*message) func() {
	if m.how == byIrecv || m.how == byEarly {
		q, err := cohort.Irecv(x.w, m.buf, source, tag)
		return func() {
			var st cohort.Status
			if err == nil {
				st, err = q.Wait()
			}
			x.check(m, st, err, all)
		}
	}
	op, err := cohort.RecvInit(x.w, m.buf, source, tag)
	if err == nil {
		err = op.Start()
	}
	return func() {
		var st cohort.Status
		if err == nil {
			st, err = op.Wait()
		}
		x.check(m, st, err, all)
		if err := op.Close(); err != nil {
			x.wrong("%v: Close: %w", m, err)
		}
	}
}

func (x *exchange) receive(m *message, source, tag int, all []*message) {
	var st, probed cohort.Status
	var err error
	switch m.how {
	case byRecv:
		st, err = cohort.Recv(x.w, m.buf, source, tag)
	case byLimited:
		st, err = cohort.Recv(x.limited, m.buf, source, tag)
	case byMprobe, byImprobe:
		var g *cohort.Message
		if m.how == byMprobe {
			g, probed, err = x.w.Mprobe(source, tag)
		} else {
			for ok := false; !ok && err == nil; {
				g, probed, ok, err = x.w.Improbe(source, tag)
			}
		}
		if err != nil {
			break
		}
		if m.how == byMprobe {
			st, err = cohort.MessageRecv(g, m.buf)
		} else {
			var q *cohort.Request
			if q, err = cohort.ImessageRecv(g, m.buf); err == nil {
				st, err = q.Wait()
			}
		}
		if st != probed {
			x.wrong("%v: the status is %+v, that of the probe %+v", m, st, probed)
		}
	default:
		x.post(m, source, tag, all)()
		return
	}
	x.check(m, st, err, all)
}

// check checks the result of a receive.
func (x *exchange) check(m *message, st cohort.Status, err error, all []*message) {
	got := m
	if m.anySource || m.anyTag {
		got = nil
		for _, c := range all {
			if c.to == m.to && c.from == st.Source && c.tag == st.Tag {
				got = c
			}
		}
		if got == nil {
			x.wrong("%v: the status %+v belongs to no message that was sent (%v)", m, st, err)
			return
		}
	}
	long := got.size > m.room
	// MPICH does not report its length, and writes only those pieces at its start that fit.
	noLength := long && x.noLength && m.how != byMprobe && m.how != byImprobe
	if st.Source != got.from || st.Tag != got.tag || cohort.Count[byte](st) != got.size && !(noLength && st.Bytes() == cohort.Undefined) {
		x.wrong("%v: the status is %d bytes from %d, tag %d (%v), want %d from %d, tag %d", m,
			cohort.Count[byte](st), st.Source, st.Tag, err, got.size, got.from, got.tag)
	}
	switch {
	case !long && err != nil:
		x.wrong("%v: %w", m, err)
	case long && !errors.Is(err, cohort.ErrTruncate):
		x.wrong("%v: got error %v, want %v: the message has %d bytes", m, err, cohort.ErrTruncate, got.size)
	}
	n := min(got.size, m.room)
	want := x.sent(got.id, n)
	if noLength && !bytes.Equal(m.buf[:n], want) {
		n = firstDifference(m.buf[:n], want) // nothing is written after that: see outside
	}
	if want = want[:n]; !bytes.Equal(m.buf[:n], want) {
		x.wrong("%v: of the first %d bytes, byte %d differs from the message", m, n, firstDifference(m.buf[:n], want))
	}
	x.outside(m, n)
}

// outside checks that in a slot only the first n bytes of the buffer were written.
func (x *exchange) outside(m *message, n int) {
	if i := notGuard(m.slot[:margin]); i >= 0 {
		x.wrong("%v: written %d bytes before the buffer", m, margin-i)
	}
	if i := notGuard(m.slot[margin+n:]); i >= 0 {
		x.wrong("%v: written %d bytes past the first %d bytes of the buffer, %d in all", m, i, n,
			len(m.slot)-margin-n-bytes.Count(m.slot[margin+n:], []byte{guardByte}))
	}
}

// clean checks a slot once more after the round and resets it.
func (x *exchange) clean(m *message) {
	if i := notGuard(m.slot[margin+m.room:]); i >= 0 {
		x.wrong("%v: written %d bytes past the buffer, after the round", m, i)
	}
	fill(m.buf)
}

// around is a Sendrecv with both neighbors.
func (x *exchange) around() {
	n, me := x.w.Size(), x.w.Rank()
	all := make([]*message, n)
	for i := range all {
		all[i] = &message{id: x.id, from: i, to: (i + 1) % n, tag: 5, size: x.size() % (1 << 20)}
		all[i].room = x.room(all[i].size)
		x.id++
	}
	x.lay(all)
	out, in := all[me], all[(me+n-1)%n]
	st, err := cohort.Sendrecv(x.w, x.sent(out.id, out.size), out.to, 5, in.buf, in.from, 5)
	x.check(in, st, err, all)
	x.clean(in)
}
