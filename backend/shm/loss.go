package shm

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// A rank is lost when its process has ended before it left, or when a rank has
// declared it lost. That stands in its area, in one word that is written once:
// how, and above it the rank that was first to say so. From then on it is a fact,
// whatever becomes of who wrote it; the text of a declaration follows, and is left
// out by who finds it missing.
//
// Every rank hears of a loss by its own watch and by the word. It takes in what
// the lost rank had written into its ring, looks at that ring no more, and ends
// the communicators that do not excuse the loss. The order is the same everywhere:
// the word comes before anything that a rank does because of it, so that who finds
// a rank gone looks at the words before it blames that one.
//
// What a rank leaves behind in shared memory when it ends, at any instruction,
// and when it is stopped there and moves again after it was taken for lost:
//
//   - A cell of a ring counts once its sequence number stands there, written last.
//     Nobody waits for a half-written one.
//   - Its bell and its sleeping word are rung in vain. The bells of others belong
//     to them; one ring too many costs a look.
//   - An offer of the lost rank is read from its memory or fails. A chunk that it
//     had claimed and not written is not waited for once the process has ended. While
//     the process is there, it could write into a buffer that its owner uses for
//     other things: then the process is ended (see fence).
//   - An offer made to the lost rank is withdrawn by a compare-and-swap, which the
//     lost rank's own then fails. A desc that it may still write to is not used
//     again before it has ended or has seen that (see heldDesc).
//   - Boards are written by their owner only. Who moves again after it was lost may
//     read boards that are in use for other communicators, and finds at the end of
//     the call that it is lost: the word is there before a board is given back.
//   - The control page is written by who ends the job. One that ends in the middle
//     of that is lost, which the others hear of instead.
//   - A communicator that it had not made, or not closed, holds no board of the others:
//     it counts as having closed it.
//   - Locks of windows that it holds stay taken. The window's communicator has ended,
//     and with it who waits for them; windows made later are other memory.
const (
	lostWriting  uint32 = iota + 1 // declared; the text is not there yet
	lostDeclared                   // declared; area.why says why
	lostEnded                      // the process has ended
)

// rankSet is a set of world ranks.
type rankSet [maxRanks / 64]uint64

func (s *rankSet) has(r int) bool { return s[r/64]&(1<<(r%64)) != 0 }

func (s *rankSet) add(r int) { s[r/64] |= 1 << (r % 64) }

// silence is a ring in which nothing ever arrives.
var silence ring

// lose notes for all ranks that a rank is lost: because its process has ended, or
// for the reason given. A rank that has left is not lost any more, and what a rank
// says that is lost itself does not count. The lock is held; what follows from the
// loss here is done by the next progress.
func (e *engine) lose(rank int, why string) {
	e.stale = true
	a := e.area[rank]
	if a.left.Load() != 0 || e.self.lost.Load() != 0 {
		return
	}
	by := uint32(e.me) << 8
	if why == "" {
		if !a.lost.CompareAndSwap(0, by|lostEnded) {
			return
		}
	} else {
		if !a.lost.CompareAndSwap(0, by|lostWriting) {
			return
		}
		a.bytes = uint32(copy(a.why[:], why))
		a.lost.Store(by | lostDeclared)
	}
	e.ctl.news.Add(1)
	for r := range e.area {
		if r != e.me {
			e.ring(r)
		}
	}
}

// loss says how a rank was lost.
func (e *engine) loss(rank int, word uint32) *backend.Fault {
	who := fmt.Sprintf("rank %d (process %d)", rank, e.pids[rank])
	if rank == e.me {
		who = fmt.Sprintf("rank %d (this one)", rank)
	}
	text := who + " ended without closing its communicator"
	if word&0xff != lostEnded {
		text = fmt.Sprintf("%s was declared lost by rank %d", who, word>>8)
	}
	if word&0xff == lostDeclared {
		a := e.area[rank]
		text += ": " + string(a.why[:min(a.bytes, textMax)])
	}
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: text}
}

// takeNews looks for ranks that have left or are lost, and for the end of the job,
// and does what follows. The lock is held.
func (e *engine) takeNews() {
	for again := true; again; again = e.stale {
		e.stale = false
		e.seenNews = e.ctl.news.Load()
		if e.fault.Load() == nil && e.ctl.state.Load() == jobFailed {
			e.jobFailed()
		}
		var left rankSet // looked at before the losses, which may be why they have left
		for r, a := range e.area {
			if r != e.me && a.left.Load() != 0 {
				left.add(r)
			}
		}
		changed := false
		for r, a := range e.area {
			switch word := a.lost.Load(); {
			case word != 0 && e.lost[r].Load() == nil:
				e.takeLoss(r, e.loss(r, word))
				changed = true
			case left.has(r) && !e.out[r].shut:
				e.lastWords(r)
				e.out[r].shut = true
				changed = true
			}
		}
		if changed {
			e.dropGone()
		}
	}
}

// takeLoss takes the loss of one rank in.
func (e *engine) takeLoss(rank int, f *backend.Fault) {
	if rank == e.me {
		e.lost[rank].Store(f)
		e.eachComm(func(c *comm) { c.end.Store(f) })
		e.end(f)
		return
	}
	e.lastWords(rank)
	e.lost[rank].Store(f)
	e.in[rank] = inRing{r: &silence}
	e.out[rank].shut = true
	e.eachComm(func(c *comm) {
		if !c.excused.has(rank) {
			c.end.CompareAndSwap(nil, f)
		}
	})
}

// eachComm calls do with the communicators of this rank: also with closed ones, on
// which a call may still be under way.
func (e *engine) eachComm(do func(*comm)) {
	for _, c := range e.comms {
		do(c)
	}
	for _, c := range e.closing {
		do(c)
	}
}

// lastWords takes in what a rank that has left or is lost has in its ring, which
// was full at most: a lost one may be writing more.
func (e *engine) lastWords(rank int) {
	for i := 0; i < 8 && e.fault.Load() == nil && e.drain(rank, true); i++ {
	}
}

// dropGone ends the operations on communicators that are over, and those that need
// a rank that has left or is lost.
func (e *engine) dropGone() {
	e.dropWhere(func(o *op) error {
		switch {
		case o.kind != 0:
			if e.isOut(o.peer) {
				return backend.ErrPeerLost // of a notice, which nobody waits for
			}
			return nil
		case o.comm.end.Load() != nil:
			return o.comm.end.Load()
		case o.state == opPosted:
			return e.cannotCome(o.comm, o.node.Env)
		case e.isOut(o.peer):
			return e.leftFault(o.comm, o.peer)
		}
		return nil
	})
	e.fenceTakes()
	for id, c := range e.closing {
		e.allClosed(id, c)
	}
	e.wakeOthers()
}

// isOut reports whether another rank has left or is lost.
func (e *engine) isOut(rank int) bool {
	return rank != e.me && (e.out[rank].shut || e.area[rank].left.Load() != 0)
}

// hear takes in what others have said, so that what is wrong is told by its cause.
func (e *engine) refresh() {
	e.mu.Lock()
	e.stale = true
	e.progress()
	e.unlock()
}

// ended is told by the watch that a process has ended.
func (e *engine) ended(rank int) {
	e.mu.Lock()
	e.dead[rank] = true
	e.lose(rank, "")
	e.takeNews()
	e.moveTakes()
	e.unlock()
	e.wakeAll()
}

// fenceAfter is how long a rank that was declared lost, and is there, has to finish
// the chunk that it is copying. It takes 10 µs if it runs.
const fenceAfter = 50 * time.Millisecond

// fenceTakes sees to it that receives from lost ranks end. The lock is held.
func (e *engine) fenceTakes() {
	for _, o := range e.takes {
		if e.lost[o.peer].Load() != nil && !e.dead[o.peer] && o.peer != e.me {
			time.AfterFunc(fenceAfter, e.fence)
			return
		}
	}
}

// fence ends the processes of lost ranks that have claimed a part of a buffer here
// and not written it, because they were stopped just then. When such a one moves
// again it writes, and nothing else keeps it from that: the buffer could not be given
// back to its owner before. All others of the job have taken it for ended already.
func (e *engine) fence() {
	e.mu.Lock()
	e.moveTakes()
	if !e.isClosed {
		for _, o := range e.takes {
			if e.lost[o.peer].Load() != nil && !e.dead[o.peer] && o.peer != e.me {
				e.watch.Kill(o.peer) // ended does the rest
			}
		}
	}
	e.unlock()
}

// Lost implements backend.Survivor.
func (c *comm) Lost() []int {
	e := c.e
	e.refresh()
	var lost []int
	for r := range e.area {
		if e.lost[r].Load() != nil {
			lost = append(lost, r)
		}
	}
	return lost
}

// Left implements backend.Survivor.
func (c *comm) Left() []int {
	e := c.e
	var left []int
	for r, a := range e.area {
		if r != e.me && a.left.Load() != 0 && e.lost[r].Load() == nil {
			left = append(left, r)
		}
	}
	return left
}

// Declare implements backend.Survivor. A rank that has left in good order is gone
// for everybody already, and stays so.
func (c *comm) Declare(rank int, why error) {
	e := c.e
	if rank < 0 || rank >= len(e.area) {
		return
	}
	e.mu.Lock()
	e.lose(rank, reason(why))
	e.takeNews()
	e.unlock()
	e.wakeAll()
}

// reason is the text of a declaration, which is never empty.
func reason(why error) string {
	if why != nil {
		if s := text(why); s != "" {
			return s
		}
	}
	return "no reason was given"
}

// Acknowledge implements backend.Survivor.
func (c *comm) Acknowledge(members []int, id uint32, lost []int) (backend.Comm, error) {
	excused := c.excused
	for _, r := range lost {
		if r < 0 || r >= len(c.e.area) {
			return nil, &backend.Fault{Sentinel: backend.ErrRank, Text: fmt.Sprintf("rank %d of a job of %d", r, len(c.e.area))}
		}
		excused.add(r)
	}
	if c.parent != nil {
		return nil, &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "a shelter has no communicators of its own"}
	}
	d, err := c.e.newComm(c.Some(members), id, excused)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Control implements backend.Survivor. It takes no board, of which a rank has few.
func (c *comm) Control(id uint32) (backend.Comm, error) {
	d := &comm{Members: c.Members, id: id, parent: c}
	for i := range d.excused {
		d.excused[i] = ^uint64(0)
	}
	d, err := c.e.enter(d)
	if err != nil {
		return nil, err
	}
	return d, nil
}
