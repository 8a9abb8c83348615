package engine

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// A Link moves frames between this rank and one peer. No method waits. The engine's lock guards all of
// them.
type Link interface {
	// Write writes the rest of a frame from byte off on: 0 for a new frame, and then what the last call
	// for the frame returned. It returns how many of the frame's frame.HeaderSize+len(body) bytes are
	// written. That is fewer than all, or none, if there is no room.
	Write(h *frame.Header, body []byte, off int) (n int, err error)
	// Flush writes what the link itself has kept back, and reports whether any of it went.
	Flush() (moved bool, err error)
	// Holds reports whether Flush has something to write.
	Holds() bool
	// Read passes what has arrived to a, a bounded amount, and reports whether there was any. An error
	// that wraps frame.ErrFrame, or that a's methods have returned, means that the peer does not keep to
	// the protocol. Any other error ends the link: io.EOF if the peer has closed it.
	Read(a *frame.Arrival) (moved bool, err error)
	// EagerMax returns the longest message that goes without a rendezvous.
	EagerMax() int

	// Hidden reports whether there may be something to read that Sleeper.Poll does not see.
	Hidden() bool
	// Limit makes the system give up a link whose data are not taken for so long, if it can.
	Limit(d time.Duration)
	// Unsent returns how much was written that the other end's system does not have.
	Unsent() int
	// Finish says that nothing more will be written: with goodbye, that this rank leaves in good order.
	Finish(goodbye bool)
	// Close ends the link. No method is called afterwards.
	Close()
}

// A Corker is a Link that can keep a short frame back, to write it together with the next one.
type Corker interface {
	// Cork keeps a frame back, and reports false if it cannot. Flush, or the next Write, writes it.
	Cork(h *frame.Header, body []byte) bool
}

// An EndChecker is a Link for which it is expensive to look whether the peer has ended the link, or itself. Read looks
// now and then, and in the call after CheckEnd.
type EndChecker interface {
	// CheckEnd makes the next Read look. It is called once each tick, and when the leader is about to sleep.
	CheckEnd()
}

// A Sleeper is what the leader of the waiting goroutines sleeps on.
type Sleeper interface {
	// Begin prepares a sleep. After it, Ring ends the sleep, and so does a peer that writes to memory. The
	// engine then reads all links once more.
	Begin()
	// Add makes something to read on a link, or with room also room to write, end the sleep. It reports
	// whether there is any already.
	Add(l Link, room bool) (ready bool)
	// Sleep waits until it is ended, for at most timeout if that is above 0.
	Sleep(timeout time.Duration)
	// End is called when the leader is awake.
	End()
	// Ring ends the sleep of the leader. Any goroutine may call it at any time before Close.
	Ring()
	// Poll calls ready for those links that are not Hidden and have something to read, or, where room is
	// set, room to write.
	Poll(links []Link, room []bool, ready func(i int))
	// Close gives back what it has.
	Close()
}
