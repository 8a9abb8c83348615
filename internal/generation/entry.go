package generation

import (
	"errors"

	"github.com/cohort-hpc/cohort/backend"
)

// An entry is what a process has told its launcher, and what it waits for, while it enters the next world. It has no clock,
// socket, lock or goroutine. Its owner passes it the messages (got), and calls step after each of them and when its time is
// over; it sends what step returns, and connects with the others in the stage connects.
//
//	stage      event                                         next       the launcher is told
//	outside    Enter is called                               wants
//	wants      –                                             asks       Ask
//	asks       a place                                       connects
//	           the time is over                              withdraws  Withdraw
//	withdraws  a place, which was on its way                 connects
//	           who has not asked                             outside
//	connects   open returns                                  connected
//	connected  open has succeeded                            joins      Joined
//	           it has failed, or the time is over            fails      Failed
//	joins      all are connected                             inside
//	           a rank is lost, or the time is over           fails      Failed
//	fails      all are connected: that was on its way        inside
//	connected, not all can be                                asks       Ask
//	joins,     not all can be, and the time is over,
//	fails      or this process has failed too often          outside    Failed, unless it has been told
//	most       there is no further place                     outside
//
// Invariant: outside and inside, the launcher waits for nothing from this process. A process that has said Joined takes
// its world for its own when the launcher says so, and only then.
type entry struct {
	at       stage
	place    Place
	ready    bool  // open has connected this process
	broken   bool  // not all ranks of the place can join
	failures int   // of this process, to connect
	failure  error // the last one
	known    int   // how many ranks the launcher knows this process to count as lost
	missing  []int // who had not asked when the time was over, this rank first
	err      error // why there is no further place
}

type stage uint8

const (
	outside stage = iota
	wants
	asks
	withdraws
	connects
	connected
	joins
	fails
	inside
)

// MostFailures is how often a process may fail to connect before it gives up: others may have ended meanwhile.
const MostFailures = 3

func (e *entry) begin() { *e = entry{at: wants, err: e.err} }

// fail says that there is no further place.
func (e *entry) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *entry) got(m Message) {
	switch {
	case m.Place != nil && (e.at == asks || e.at == withdraws):
		e.at, e.place, e.broken = connects, *m.Place, false
	case m.Missing != nil && e.at == withdraws:
		e.at, e.missing = outside, m.Missing
	case m.Go && (e.at == joins || e.at == fails):
		e.at = inside
	case m.Broken != "":
		e.broken = true
	case m.Out != "" && m.Left:
		e.fail(&backend.Fault{Sentinel: backend.ErrClosed, Text: m.Out})
	case m.Out != "":
		e.fail(&backend.Fault{Sentinel: backend.ErrPeerLost, Text: m.Out})
	}
}

func (e *entry) opened(err error) {
	e.at, e.ready, e.failure = connected, err == nil, nil
	if err != nil && !e.broken && !errors.Is(err, backend.ErrPeerLost) { // else another rank is the cause
		e.failures++
		e.failure = err
	}
}

// step does what is due, and returns the requests to send to the launcher. over says that the time is over, gone that a rank
// of the place counts as lost. lost are the ranks of the present world that count as lost.
func (e *entry) step(over, gone bool, lost []int) []Request {
	switch {
	case e.at == outside || e.at == inside || e.at == connects:
	case e.err != nil:
		e.at = outside
	case e.at == wants:
		e.at, e.known = asks, len(lost)
		return []Request{{Ask: &Ask{Lost: lost}}}
	case e.at == asks && over:
		e.at = withdraws
		return []Request{{Withdraw: true}}
	case e.at == asks && len(lost) > e.known:
		e.known = len(lost)
		return []Request{{Lost: lost}}
	case e.at == asks || e.at == withdraws:
	case e.broken && !over && e.failures < MostFailures:
		e.at = asks
		e.known = len(lost)
		return []Request{{Ask: &Ask{Lost: lost}}}
	case e.broken && e.at == fails:
		e.at = outside
	case e.broken:
		e.at = outside
		return []Request{{Failed: true}}
	case e.at == connected && e.ready && !over:
		e.at = joins
		return []Request{{Joined: true}}
	case e.at == connected || e.at == joins && (over || gone):
		e.at = fails
		return []Request{{Failed: true}}
	}
	return nil
}
