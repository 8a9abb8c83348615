package sched

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// At its deadline a rank has only seen which ranks have sent it messages, and which ones it waits
// for itself. The rank that holds all others up may be further along: rank 2 waits for rank 3, which
// waits for rank 1. So the ranks whose deadline has passed report to each other and merge the
// reports. A rank that others wait for and that has not reported holds them up.

const (
	reportTag = -1 // below it are the tags of collectives
	reportAll = 64 // with more ranks, a report goes to some of them, which pass it on
)

// reportTime is how long a rank listens for reports. With Grace it stays below the 50 ms that an
// operation may take to end after its deadline.
var reportTime = 20 * time.Millisecond

// state is what ranks report, and what they merge from the reports they receive.
type state struct {
	arrived  agree.Set // ranks known to have started the operation
	awaited  agree.Set // ranks that a rank waits for
	reported agree.Set // ranks whose report is merged
}

func (s *state) sets() [3]agree.Set { return [...]agree.Set{s.arrived, s.awaited, s.reported} }

// missing returns the ranks of n that have not arrived, as far as s goes.
func (s *state) missing(n int) (ranks []int) {
	for r := range n {
		if !s.arrived.Has(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// state returns what this rank has seen. The operation may go on meanwhile.
func (o *Op) state() *state {
	n := o.r.size
	s := &state{o.arrived(), agree.NewSet(n), agree.NewSet(n)}
	var waiting []int
	if !o.call.Coll.Neighbor() || o.now().data() >= landed { // the check alone holds up no neighbor
		waiting = o.check.appendWaiting(nil)
	}
	for _, r := range o.data.appendWaiting(waiting) {
		s.awaited.Add(r)
	}
	s.reported.Add(o.r.rank)
	return s
}

// arrived returns the ranks known to have started the operation.
func (o *Op) arrived() agree.Set {
	n, me := o.r.size, o.r.rank
	s := agree.NewSet(n)
	s.Add(me)
	switch o.now().check() {
	case passed: // all have; an exchange of lengths may follow
		for r := range n {
			s.Add(r)
		}
	case checking, failed:
		for i := range o.r.legs[:min(int(o.check.step.Load()), len(o.r.legs))] {
			o.r.addArrivals(&o.r.legs[i], s)
		}
	}
	if d := &o.data; d.s != nil {
		now := int(d.round.Load())
		for i := 0; i <= now && i < len(d.s.Rounds); i++ {
			for j, a := range d.s.Rounds[i].Comm {
				if a.Kind == coll.RecvFrom && (i < now || !d.reqs[j].Active()) {
					s.Add(a.Peer)
				}
			}
		}
	}
	return s
}

// report sends this rank's state in the operation with a tag to the others and merges theirs into it.
func (r *Runner) report(tag int, s *state) {
	rounds := 1
	if r.size > reportAll {
		rounds = bits.Len(uint(r.size - 1)) // each passes on what came in the one before
	}
	for range rounds {
		r.sendReport(tag, s)
		if !r.listen(tag, s, time.Now().Add(reportTime/time.Duration(rounds))) {
			return
		}
	}
}

func (r *Runner) sendReport(tag int, s *state) {
	out := binary.LittleEndian.AppendUint64(nil, uint64(tag))
	for _, set := range s.sets() {
		for _, w := range set {
			out = binary.LittleEndian.AppendUint64(out, w)
		}
	}
	for i := 1; i < r.size; i++ {
		if r.size > reportAll && bits.OnesCount(uint(i)) > 1 {
			continue
		}
		q := new(backend.Request) // completes unobserved
		q.Begin()
		r.comm.Isend(q, out, (r.rank+i)%r.size, reportTag, backend.Standard)
	}
}

// listen merges reports until end. It returns false if the communicator has broken meanwhile.
func (r *Runner) listen(tag int, s *state, end time.Time) bool {
	in := make([]byte, 8+3*8*len(s.arrived))
	for {
		left := time.Until(end)
		if left <= 0 {
			return true
		}
		q := new(backend.Request)
		q.Begin()
		r.comm.Irecv(q, in, backend.AnySource, reportTag)
		if r.comm.Await(&backend.Bound{Timeout: left}, q) != nil {
			r.comm.Cancel(q)
			return true
		}
		if q.Err != nil {
			return false
		}
		if q.Status.Bytes != len(in) || int(int64(binary.LittleEndian.Uint64(in))) != tag {
			continue
		}
		words := in[8:]
		for _, set := range s.sets() {
			for i := range set {
				set[i] |= binary.LittleEndian.Uint64(words)
				words = words[8:]
			}
		}
	}
}

// describe says where an operation stands that has been broken off: which ranks have not arrived, or
// which ones it waits for and which of them hold it up. With ask, other ranks' reports count.
func (o *Op) describe(ask bool) string {
	s := o.state()
	waiting := s.awaited.List()
	if ask {
		o.r.report(o.check.tag, s)
	}
	missing, text := s.missing(o.r.size), "all ranks have arrived"
	if o.call.Coll.Neighbor() { // nobody needs the others
		missing, text = slices.DeleteFunc(s.awaited.List(), s.arrived.Has), "the neighbors have arrived"
	}
	if len(missing) > 0 {
		return "not heard from " + backend.RankList(missing)
	}
	if len(waiting) > 0 {
		text += "; waiting for messages from " + backend.RankList(waiting)
	}
	if by := slices.DeleteFunc(s.awaited.List(), s.reported.Has); ask && len(by) > 0 && !slices.Equal(by, waiting) {
		text += ", held up by " + backend.RankList(by)
	}
	return text
}
