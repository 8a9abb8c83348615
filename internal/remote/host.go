//go:build unix

package remote

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// host is one at work.
type host struct {
	Host
	first, count int // ranks
	shell        *shell
	link         *link
	hello        hello
	said         chan frame   // by the agent after hello; closed after its end
	quiet        atomic.Int32 // how many times pingEvery without a word
	silent       atomic.Bool  // given up for that

	ended, lost bool // owned by the job's loop, as is done: nothing will follow
	done        bool
}

// frame is what an agent has said, or why nothing more comes.
type frame struct {
	k   kind
	b   []byte
	err error
}

// attend begins to listen to the agent, and to have it hear of this process. It listens whether what is said
// is wanted yet or not: a host that is ready long before another one, or gets a large program, is not silent.
func (h *host) attend(closed <-chan struct{}) {
	h.said = make(chan frame, 2) // room for what may come before it is wanted: a fault, and the end
	go h.listen(closed)
	go h.beat()
}

// listen reads what the agent says, until its end or that of the job.
func (h *host) listen(closed <-chan struct{}) {
	defer close(h.said)
	for {
		k, b, err := readFrame(h.shell.r, toLauncher)
		h.quiet.Store(0)
		if err == nil && k == kindPing {
			continue
		}
		select {
		case h.said <- frame{k, b, err}:
		case <-closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// next returns the next that the agent has said.
func (h *host) next() (kind, []byte, error) {
	f, ok := <-h.said
	if !ok {
		return 0, nil, io.EOF
	}
	return f.k, f.b, f.err
}

// beat looks after the host until ssh has ended.
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

// check has the agent hear of this process, and gives up a host that is silent.
func (h *host) check() bool {
	h.link.send(kindPing)
	if h.quiet.Add(1) <= silence {
		return true
	}
	h.silent.Store(true)
	h.shell.kill()
	return false
}

// explain says why nothing more comes from a host, whose ssh has ended, or is ended now.
func (h *host) explain(ctx context.Context, err error) error {
	err = h.shell.explain(ctx, err)
	if h.silent.Load() && context.Cause(ctx) == nil {
		err = fmt.Errorf("no message for %v", silence*pingEvery)
	}
	return err
}
