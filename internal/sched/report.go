package sched

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/coll"
)

// Who is missing. When an operation's time is up, a rank knows only of the ranks
// whose messages have reached it, and waits perhaps for one that waits itself.
// So the ranks whose time is up tell each other whom they have heard of, wait a
// moment for what the others tell, and name those nobody has heard of.

const (
	reportTag  = -1                    // below it are the tags of collectives
	reportTime = 10 * time.Millisecond // how long to listen
	reportAll  = 64                    // above as many ranks, reports go to some only
)

// rankSet is a set of ranks.
type rankSet []uint64

func newRankSet(n int) rankSet { return make(rankSet, (n+63)/64) }

func (s rankSet) add(r int)      { s[r/64] |= 1 << (r % 64) }
func (s rankSet) has(r int) bool { return s[r/64]>>(r%64)&1 == 1 }

// heard returns the ranks known to have come. It may be called while the
// operation goes on, and is then a moment's view.
func (o *Op) heard() rankSet {
	n, me := o.r.size, o.r.rank
	s := newRankSet(n)
	s.add(me)
	if o.checking {
		for i := range o.r.legs[:min(int(o.check.step.Load()), len(o.r.legs))] {
			o.r.told(&o.r.legs[i], s)
		}
	}
	if d := &o.data; d.s != nil {
		now := int(d.round.Load())
		for i := 0; i <= now && i < len(d.s.Rounds); i++ {
			for j, a := range d.s.Rounds[i].Comm {
				if a.Kind == coll.RecvFrom && (i < now || !d.reqs[j].Active()) {
					s.add(a.Peer)
				}
			}
		}
	}
	return s
}

// missing returns the ranks that neither this one nor, with ask, any that
// answers has heard of.
func (o *Op) missing(ask bool) []int {
	r := o.r
	seen := o.heard()
	if ask {
		r.report(o.check.tag, seen)
	}
	var ranks []int
	for i := range r.size {
		if !seen.has(i) {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// report tells the others whom this rank has heard of in the operation with a
// tag, and adds to it what they tell.
func (r *Runner) report(tag int, seen rankSet) {
	out := make([]byte, 8+8*len(seen))
	binary.LittleEndian.PutUint64(out, uint64(tag))
	for i, w := range seen {
		binary.LittleEndian.PutUint64(out[8+8*i:], w)
	}
	for i := 1; i < r.size; i++ {
		if r.size > reportAll && bits.OnesCount(uint(i)) > 1 {
			continue
		}
		q := new(backend.Request) // nobody waits for it
		q.Begin()
		r.comm.Isend(q, out, (r.rank+i)%r.size, reportTag, backend.Standard)
	}
	in := make([]byte, len(out))
	for end := time.Now().Add(reportTime); ; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		q := new(backend.Request)
		q.Begin()
		r.comm.Irecv(q, in, backend.AnySource, reportTag)
		if r.comm.Await(&backend.Bound{Timeout: left}, q) != nil {
			r.comm.Cancel(q)
			return
		}
		if q.Err != nil {
			return
		}
		if q.Status.Bytes == len(in) && int(int64(binary.LittleEndian.Uint64(in))) == tag {
			for i := range seen {
				seen[i] |= binary.LittleEndian.Uint64(in[8+8*i:])
			}
		}
	}
}

// describe says in words where an operation stands that was broken off.
func (o *Op) describe(ask bool) string {
	missing := o.missing(ask)
	if len(missing) > 0 {
		return "not heard from " + nameRanks(missing)
	}
	text := "all ranks have come"
	if w := o.waiting(); len(w) > 0 {
		text += ", waiting for messages of " + nameRanks(w)
	}
	return text
}

// waiting returns the ranks that messages are missing from.
func (o *Op) waiting() []int {
	s := newRankSet(o.r.size)
	var peers []int
	peers = o.data.waiting(o.check.waiting(peers))
	for _, p := range peers {
		s.add(p)
	}
	peers = peers[:0]
	for i := range o.r.size {
		if s.has(i) {
			peers = append(peers, i)
		}
	}
	return peers
}

// nameRanks writes ascending ranks: "rank 2", "ranks 2, 3 and 5", with the
// number of the others if there are many.
func nameRanks(ranks []int) string {
	const most = 16
	if len(ranks) == 1 {
		return "rank " + strconv.Itoa(ranks[0])
	}
	var names []string
	for _, r := range ranks[:min(len(ranks), most)] {
		names = append(names, strconv.Itoa(r))
	}
	last := names[len(names)-1]
	names = names[:len(names)-1]
	if len(ranks) > most {
		return fmt.Sprintf("ranks %s, %s and %d more", strings.Join(names, ", "), last, len(ranks)-most)
	}
	return fmt.Sprintf("ranks %s and %s", strings.Join(names, ", "), last)
}
