//go:build unix

package remote

import (
	"context"
	"fmt"
	"io"
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
	frames       chan frame    // from the agent after hello; closed after its end
	quiet        atomic.Int32  // intervals pingEvery without a message
	silent       atomic.Int64  // the time.Duration of that for which it was given up
	ending       chan struct{} // closed when only its own end is awaited

	running     map[int]bool // ids of its processes that run; owned by the job's loop, as are those below
	ended, lost bool
	stopped     bool // its ranks that run have been stopped since the first success
	hurried     bool // ending is closed
	done        bool // no more frames will come
}

// frame is a frame from an agent, or the error that ended its connection.
type frame struct {
	k   kind
	b   []byte
	err error
}

// attend starts to read the agent's frames, and to send it pings. It reads frames before they are needed, so
// that a host is not given up as silent while it waits for another host, or receives a large program.
func (h *host) attend(closed <-chan struct{}) {
	h.frames = make(chan frame, 2) // room for frames that may come early: a fault, and the end
	h.ending = make(chan struct{})
	go h.listen(closed)
	go h.beat()
}

// listen reads the agent's frames until its end or that of the job.
func (h *host) listen(closed <-chan struct{}) {
	defer close(h.frames)
	for {
		k, b, err := readFrame(h, toLauncher)
		if err == nil && k == kindPing {
			continue
		}
		select {
		case h.frames <- frame{k, b, err}:
		case <-closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read reads from the agent. Each piece of a long frame shows that the agent is alive.
func (h *host) Read(b []byte) (int, error) {
	n, err := h.shell.r.Read(b)
	h.quiet.Store(0)
	return n, err
}

// next returns the agent's next frame.
func (h *host) next() (kind, []byte, error) {
	f, ok := <-h.frames
	if !ok {
		return 0, nil, io.EOF
	}
	return f.k, f.b, f.err
}

// hurry gives the host up soon if it is silent, because nothing but its end is awaited.
func (h *host) hurry() {
	if !h.hurried {
		h.hurried = true
		close(h.ending)
	}
}

// beat sends pings to the host and checks it until ssh has ended.
func (h *host) beat() {
	every, most, ending := pingEvery, silence, h.ending
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-h.shell.ended:
			return
		case <-ending:
			every, most, ending = time.Second, int(endLimit/time.Second), nil
			tick.Reset(every)
			h.quiet.Store(0)
		case <-tick.C:
		}
		if !h.check(every, most) {
			return
		}
	}
}

// check sends a ping, and gives up a host that has been silent for more than most intervals between pings.
func (h *host) check(every time.Duration, most int) bool {
	h.link.send(kindPing)
	if int(h.quiet.Add(1)) <= most {
		return true
	}
	h.silent.Store(int64(most) * int64(every))
	h.shell.kill()
	return false
}

// explain returns why the connection to a host ended. If ssh has not ended, it is killed.
func (h *host) explain(ctx context.Context, err error) error {
	err = h.shell.explain(ctx, err)
	if silent := time.Duration(h.silent.Load()); silent > 0 && context.Cause(ctx) == nil {
		err = fmt.Errorf("no message for %v", silent)
	}
	return err
}
