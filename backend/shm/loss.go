package shm

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// A rank is lost when its process has ended before it left, or when another rank has declared it
// lost. One word in its area, written once, records that: how, and which rank published it. From
// then on the loss is a fact, whatever becomes of the rank that wrote it. The text of a declaration
// follows; a reader that finds it missing leaves it out.
//
// Every rank learns of a loss from its own watch and from the word. It takes in what the lost rank
// had written into its ring, never reads that ring again, and ends the communicators that have not
// acknowledged the loss. The order is the same everywhere: the word is written before anything that
// a rank does because of it, so a rank that finds another gone reads the words before it blames it.
//
// This is what a rank leaves in shared memory when it ends, at any instruction, and when it is
// stopped there and runs again after it was declared lost:
//
//   - A cell of a ring counts once its sequence number, written last, is there. No one waits for a
//     half-written one.
//   - Waking it has no effect. It may still wake others, which costs them one look.
//   - Reading a message that it announced works or fails. A chunk that it claimed and did not write
//     is not waited for once the process has ended. As long as the process exists it could write
//     into a buffer that its owner has reused: then the process is killed (see fence).
//   - A message announced to it is withdrawn by a compare-and-swap, after which its own fails. A desc
//     that it may still write to is not used again before it has ended or has noticed (see heldDesc).
//   - Arrival slots are written by their owner only. A lost rank that runs again may read slots that
//     other communicators use by then, and finds at the end of the call that it is lost: the word is
//     written before slots are freed.
//   - The control page is written by the rank that ends the job. If it ends in the middle of that,
//     it is lost, and the others learn of that instead.
//   - A communicator that it had not made, or not closed, keeps no slots of the others in use: it
//     counts as having closed it.
//   - Locks of windows that it holds stay taken. The window's communicator has ended, and with it
//     every wait for them; windows made later have other memory.
const (
	lostWriting  uint32 = iota + 1 // declared; the text is not there yet
	lostDeclared                   // declared; area.why says why
	lostEnded                      // the process has ended
)

// rankSet is a set of world ranks.
type rankSet [maxRanks / 64]uint64

func (s *rankSet) has(r int) bool { return s[r/64]&(1<<(r%64)) != 0 }

func (s *rankSet) add(r int) { s[r/64] |= 1 << (r % 64) }

// silence is a ring in which nothing arrives.
var silence ring

// lose records for all ranks that a rank is lost: because its process has ended, or for the reason
// given. A rank that has left is not lost, and a rank that is lost itself can declare nothing. The
// lock is held; the next progress does what follows here.
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

// loss describes how a rank was lost.
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

// takeNews looks for ranks that have left or are lost, and for the end of the job, and does what
// follows. The lock is held.
func (e *engine) takeNews() {
	for again := true; again; again = e.stale {
		e.stale = false
		e.seenNews = e.ctl.news.Load()
		if e.fault.Load() == nil && e.ctl.state.Load() == jobFailed {
			e.jobFailed()
		}
		var left rankSet // read before the losses, which may be why they have left
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

// takeLoss does what follows from the loss of one rank.
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
		if !c.acked.has(rank) {
			c.end.CompareAndSwap(nil, f)
		}
	})
}

// eachComm calls do with the communicators of this rank, closed ones included: a call on one may
// still be in progress.
func (e *engine) eachComm(do func(*comm)) {
	for _, c := range e.comms {
		do(c)
	}
	for _, c := range e.closing {
		do(c)
	}
}

// lastWords takes in what a rank that has left or is lost has in its ring. That is a full ring at
// most: a lost rank may still be writing more.
func (e *engine) lastWords(rank int) {
	for i := 0; i < 8 && e.fault.Load() == nil && e.drain(rank, true); i++ {
	}
}

// dropGone ends the operations on communicators that have ended, and those that need a rank that
// has left or is lost.
func (e *engine) dropGone() {
	e.dropWhere(func(o *op) error {
		switch {
		case o.kind != 0:
			if e.isOut(o.peer) {
				return backend.ErrPeerLost // of a notice, for which no one waits
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

// refresh takes in all that the others have published, so that an error names its cause.
func (e *engine) refresh() {
	e.mu.Lock()
	e.stale = true
	e.progress()
	e.unlock()
}

// ended is called by the watch when a process has ended.
func (e *engine) ended(rank int) {
	e.mu.Lock()
	e.dead[rank] = true
	e.lose(rank, "")
	e.takeNews()
	e.moveTakes()
	e.unlock()
	e.wakeAll()
}

// fenceAfter is the time that a rank which was declared lost, and still exists, has to finish the
// chunk that it is copying. A running rank needs 10 µs.
const fenceAfter = 50 * time.Millisecond

// fenceTakes makes sure that receives from lost ranks end. The lock is held.
func (e *engine) fenceTakes() {
	for _, o := range e.takes {
		if e.lost[o.peer].Load() != nil && !e.dead[o.peer] && o.peer != e.me {
			time.AfterFunc(fenceAfter, e.fence)
			return
		}
	}
}

// fence kills the processes of lost ranks that have claimed a part of a buffer here and not written
// it, because they were stopped just then. Such a process writes when it runs again, and nothing
// else prevents that, so the buffer could not be returned to its owner. All other ranks count the
// process as ended already.
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

// Declare implements backend.Survivor. A rank that has left is gone for everybody already, and
// stays so.
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
	acked := c.acked
	for _, r := range lost {
		if r < 0 || r >= len(c.e.area) {
			return nil, &backend.Fault{Sentinel: backend.ErrRank, Text: fmt.Sprintf("rank %d of a job of %d", r, len(c.e.area))}
		}
		acked.add(r)
	}
	if c.parent != nil {
		return nil, &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "no communicator can be derived from a control communicator"}
	}
	d, err := c.e.newComm(c.Some(members), id, acked)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Control implements backend.Survivor. A control communicator takes no slots, of which a rank has
// few.
func (c *comm) Control(id uint32) (backend.Comm, error) {
	d := &comm{Members: c.Members, id: id, parent: c}
	for i := range d.acked {
		d.acked[i] = ^uint64(0)
	}
	d, err := c.e.enter(d)
	if err != nil {
		return nil, err
	}
	return d, nil
}
