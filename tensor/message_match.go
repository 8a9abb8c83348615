package tensor

import (
	"context"
	"errors"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// messages is the state of messages of a communicator.
//
// Envelopes match receives in MPI's order, because each receive is a receive of the root package,
// posted when the operation starts, and each probe is a matched probe of the root package.
type messages struct {
	k *core

	mu       sync.Mutex
	change   sync.Cond
	closed   bool
	inFlight []*envelope // of sends, and of receives whose envelope has come
	waiting  int         // receives whose envelope has not come
	sent     []int       // the next payload tag for each rank
	maxTag   int         // the largest payload tag

	ctx        context.Context // for work that continues after its operation has ended
	stop       context.CancelFunc
	background sync.WaitGroup
}

func (m *messages) init(k *core) {
	m.k = k
	m.change.L = &m.mu
	m.sent = make([]int, k.head.Size())
	m.maxTag = min(k.load.Caps().MaxTag, 1<<31-1)
	m.ctx, m.stop = context.WithCancel(context.Background())
}

// close rejects new operations and waits for messages in flight until the context ends.
func (m *messages) close(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.wait(ctx, func() bool { return len(m.inFlight) == 0 })
}

// end waits for all operations of a closed communicator until the context ends. Then it returns an error that names a
// message in flight, if there is one.
func (m *messages) end(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait(ctx, func() bool { return m.waiting+len(m.inFlight) == 0 })
	if len(m.inFlight) == 0 {
		return nil
	}
	l, way := m.inFlight[0], "receive from"
	if l.out {
		way = "send to"
	}
	return fault(cohort.ErrRequest, "the %s rank %d with tag %d is not complete; wait for it before Close", way, l.peer, l.tag)
}

// wait waits for a change of a closed communicator until the context ends. The caller has locked mu.
func (m *messages) wait(ctx context.Context, come func() bool) {
	defer context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.change.Broadcast()
	})()
	for !come() && ctx.Err() == nil {
		m.change.Wait()
	}
}

// begin counts a message in flight. If it has a payload of its own, begin assigns the payload's tag.
func (m *messages) begin(l *envelope, own bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return backend.CommClosed
	}
	if own && uint(l.peer) < uint(len(m.sent)) {
		l.number = m.sent[l.peer]
		if m.sent[l.peer]++; l.number == m.maxTag {
			m.sent[l.peer] = 0
		}
	}
	m.add(l)
	return nil
}

// add counts a message in flight. The caller has locked mu.
func (m *messages) add(l *envelope) {
	l.at = len(m.inFlight)
	m.inFlight = append(m.inFlight, l)
}

// done counts down an operation that Close waits for. l can be used again unless the library may still use its memory.
func (m *messages) done(l *envelope, again bool) {
	m.mu.Lock()
	n := len(m.inFlight) - 1
	last := m.inFlight[n]
	m.inFlight[l.at], last.at = last, l.at
	m.inFlight[n] = nil
	m.inFlight = m.inFlight[:n]
	if m.closed {
		m.change.Broadcast()
	}
	m.mu.Unlock()
	if again {
		l.free()
	}
}

// await waits for the envelope of a message. The message is then in flight, and the caller must
// call end.
func (c *Comm) await(m *messages, source, tag int) (*envelope, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, backend.CommClosed
	}
	m.waiting++
	m.mu.Unlock()
	l := newEnvelope()
	st, err := cohort.Recv(c.head, l.b[:], source, tag)
	return l, m.arrived(l, st, err)
}

// post starts a receive of an envelope into l. When q is complete, the caller must call arrived.
func (c *Comm) post(m *messages, source, tag int) (l *envelope, q *cohort.Request, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, backend.CommClosed
	}
	l = newEnvelope()
	if q, err = cohort.Irecv(c.head, l.b[:], source, tag); err != nil {
		l.free()
		return nil, nil, err
	}
	q.Done() // from now on a goroutine waits for it, as Close asks
	m.waiting++
	return l, q, nil
}

// arrived is called when the receive of an envelope is complete. It decodes the envelope.
func (m *messages) arrived(l *envelope, st cohort.Status, err error) error {
	l.peer, l.tag, l.out = st.Source, st.Tag, false
	m.mu.Lock()
	m.waiting--
	closed := m.closed
	if err == nil {
		m.add(l)
	} else if closed {
		m.change.Broadcast()
	}
	m.mu.Unlock()
	if err != nil {
		if closed && errors.Is(err, cohort.ErrPeerLost) {
			err = backend.CommClosed // other ranks closed while Close waited, which a receive from any source sees as a loss
		}
		return err // the envelope is not reused: the library may still write to it
	}
	if err = l.read(st.Bytes(), m.maxTag); err != nil {
		m.done(l, true)
	}
	return err
}
