//go:build unix

package remote

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"
)

// host is the state of a host of the job.
type host struct {
	Host
	first, count int // ranks
	shell        *shell
	link         *link
	hello        hello
	coordinator  netip.AddrPort // where its ranks find this process
	in           *gob.Decoder   // of the agent's messages
	events       chan event     // from the agent after hello; closed after its end
	quiet        atomic.Int32   // intervals pingEvery without a message
	most         atomic.Int32   // such intervals before it is given up
	givenUp      atomic.Bool    // it was silent for too long

	running map[int]bool // ids of its processes that run; owned by the job's loop, as is state
	state   hostState
}

// hostState says what the judge expects from a host.
//
//	state    means                                               entered from   by
//	runs     its ranks run, or may be started                    new, stopped   kindStopped (no), endStopped
//	stopped  all its ranks that run have been stopped since the  runs           kindStopped (yes)
//	         first success
//	drains   its processes have ended, but not their output      runs, stopped  kindDrains
//	ended    its ranks have ended, or cannot be started          those above    kindEnded, kindFault
//	done     it sends nothing more                               ended          kindDone, or the connection ends
//	lost     the connection has ended before its ranks           those above    lose
type hostState uint8

const (
	hostRuns hostState = iota
	hostStopped
	hostDrains
	hostEnded
	hostDone
	hostLost
)

// over reports whether the ranks of the host have ended, or are lost with it.
func (h *host) over() bool { return h.state >= hostEnded }

// event is a message from a host, or the error that ended its connection.
type event struct {
	message
	h   *host
	err error
}

// attend starts to read the agent's messages, and to send it pings. It reads messages before they are needed, so
// that a host is not given up as silent while it waits for another host, or receives a large program.
func (h *host) attend(closed <-chan struct{}) {
	h.events = make(chan event, 2) // room for messages that may come early: a fault, and the end
	h.most.Store(silence)
	go h.listen(closed)
	go h.beat()
}

// listen reads the agent's messages until its end or that of the job.
func (h *host) listen(closed <-chan struct{}) {
	defer close(h.events)
	for {
		e := event{h: h}
		if e.err = h.in.Decode(&e.message); e.err == nil && e.Kind == kindPing {
			continue
		}
		select {
		case h.events <- e:
		case <-closed:
			return
		}
		if e.err != nil {
			return
		}
	}
}

// Read reads from the agent. Each piece of a long message shows that the agent is alive.
func (h *host) Read(b []byte) (int, error) {
	n, err := h.shell.r.Read(b)
	h.quiet.Store(0)
	return n, err
}

func (h *host) next() event {
	if e, ok := <-h.events; ok {
		return e
	}
	return event{h: h, err: io.EOF}
}

// hurry gives the host up soon if it is silent, because nothing but its end is awaited.
func (h *host) hurry() {
	if h.most.Swap(hurried) != hurried {
		h.quiet.Store(0)
	}
}

// beat sends pings to the host until ssh has ended, and gives up a host that has been silent for too long.
func (h *host) beat() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.shell.ended:
			return
		case <-tick.C:
		}
		if !h.check() {
			return
		}
	}
}

// check sends a ping, and gives up a host that has been silent for more than most intervals between pings.
func (h *host) check() bool {
	h.link.say(kindPing)
	if h.quiet.Add(1) <= h.most.Load() {
		return true
	}
	h.givenUp.Store(true)
	h.shell.kill()
	return false
}

// explain returns why the connection to a host ended. If ssh has not ended, it is killed.
func (h *host) explain(ctx context.Context, err error) error {
	err = h.shell.explain(ctx, err)
	if h.givenUp.Load() && context.Cause(ctx) == nil {
		err = fmt.Errorf("no message for %v", time.Duration(h.most.Load())*pingEvery)
	}
	return err
}
