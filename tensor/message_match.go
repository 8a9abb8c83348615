package tensor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort"
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
	inFlight int   // sends, and receives whose envelope has come
	posted   int   // nonblocking receives whose envelope has not come
	blocking int   // blocking receives whose envelope has not come
	stuck    bool  // Close does not wait for blocking receives any more
	sent     []int // the next payload tag for each rank
	maxTag   int   // the largest payload tag

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

// close waits for messages in flight, and ends receives and probes without a message.
func (m *messages) close() error {
	m.mu.Lock()
	m.closed = true
	for m.inFlight > 0 {
		m.change.Wait()
	}
	m.mu.Unlock()
	err := m.k.head.Close()
	if m.k.head.Backend() == "mpi" { // which may not return from a receive without a message
		defer time.AfterFunc(time.Second, func() {
			m.mu.Lock()
			m.stuck = true
			m.mu.Unlock()
			m.change.Broadcast()
		}).Stop()
	}
	m.mu.Lock()
	for m.posted+m.inFlight > 0 || m.blocking > 0 && !m.stuck {
		m.change.Wait()
	}
	m.mu.Unlock()
	m.stop()
	m.background.Wait()
	return err
}

// begin counts a send and assigns the tag of its payload.
func (m *messages) begin(dest int, own bool) (number int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, errClosed()
	}
	m.inFlight++
	if own && uint(dest) < uint(len(m.sent)) {
		number = m.sent[dest]
		if m.sent[dest]++; number == m.maxTag {
			m.sent[dest] = 0
		}
	}
	return number, nil
}

func errClosed() error { return fault(cohort.ErrClosed, "the communicator is closed") }

// end counts down an operation that Close waits for.
func (m *messages) end() {
	m.mu.Lock()
	m.inFlight--
	if m.closed {
		m.change.Broadcast()
	}
	m.mu.Unlock()
}

// await waits for the envelope of a message. The message is then in flight, and the caller must
// call end.
func (c *Comm) await(m *messages, source, tag int) (*envelope, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, errClosed()
	}
	m.blocking++
	m.mu.Unlock()
	l := newEnvelope()
	st, err := cohort.Recv(c.head, l.b[:], source, tag)
	return l, m.arrived(&m.blocking, l, st, err)
}

// post starts a receive of an envelope into l. When q is complete, the caller must call arrived.
func (c *Comm) post(m *messages, source, tag int) (l *envelope, q *cohort.Request, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, errClosed()
	}
	l = newEnvelope()
	if q, err = cohort.Irecv(c.head, l.b[:], source, tag); err != nil {
		l.free()
		return nil, nil, err
	}
	q.Done() // from now on a goroutine waits for it, as Close asks
	m.posted++
	return l, q, nil
}

// arrived is called when the receive of an envelope is complete. It decodes the envelope. waiting is
// the count of the receive, posted or blocking.
func (m *messages) arrived(waiting *int, l *envelope, st cohort.Status, err error) error {
	m.mu.Lock()
	*waiting--
	closed := m.closed
	if err == nil {
		m.inFlight++
	} else if closed {
		m.change.Broadcast()
	}
	m.mu.Unlock()
	l.source, l.tag = st.Source, st.Tag
	if err != nil {
		if closed && errors.Is(err, cohort.ErrPeerLost) {
			err = errClosed() // other ranks closed while Close waited, which a receive from any source sees as a loss
		}
		return err // the envelope is not reused: the library may still write to it
	}
	if err = l.read(st.Bytes(), m.maxTag); err != nil {
		m.end()
		l.free()
	}
	return err
}
