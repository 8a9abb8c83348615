package tensor

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// messages is what a communicator keeps of messages under way.
//
// Envelopes match receives in MPI's order because each receive is a receive of the library beneath, and
// is made when the operation starts. A probe has to look into an envelope, and so takes it out of the
// library's queue, into probed, where later receives look first. It must not take one that an earlier
// receive is about to get: nonblocking ones have been posted when the lock is let go, and blocking ones
// say what they want before they call. Invariant: an envelope that a probe finds, and that one in
// blocking wants, is either about to be taken by it, or another one is, which it is about to say.
type messages struct {
	k *core

	mu       sync.Mutex
	change   sync.Cond
	closed   bool
	under    int       // sends, and receives whose envelope has come
	posted   int       // nonblocking receives whose envelope has not
	sent     []int     // the tag of the next payload to each rank
	maxTag   int       // the largest one
	probed   []*letter // in the order in which they came
	blocking []*letter // receives; source and tag are what they ask for
	probers  []*prober // probes that wait

	ctx        context.Context // of what goes on after its operation has ended
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

// close waits for what is under way, and ends receives and probes for which there is no message.
func (m *messages) close() error {
	m.mu.Lock()
	m.closed = true
	for m.under > 0 {
		m.change.Wait()
	}
	m.mu.Unlock()
	err := m.k.head.Close()
	m.mu.Lock()
	for m.posted+m.under > 0 {
		m.change.Wait()
	}
	m.probed = nil
	m.mu.Unlock()
	m.stop()
	m.background.Wait()
	return err
}

// begin counts a send, and gives it a tag for its payload.
func (m *messages) begin(dest int, own bool) (number int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, errClosed()
	}
	m.under++
	if own && uint(dest) < uint(len(m.sent)) {
		number = m.sent[dest]
		if m.sent[dest]++; number == m.maxTag {
			m.sent[dest] = 0
		}
	}
	return number, nil
}

func (m *messages) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

func errClosed() error { return fault(cohort.ErrClosed, "the communicator is closed") }

// end is called when an operation that Close waits for is over.
func (m *messages) end() {
	m.mu.Lock()
	m.under--
	if m.closed {
		m.change.Broadcast()
	}
	m.mu.Unlock()
}

// covers reports whether who asks for source and tag gets a message.
func (l *letter) covers(source, tag int) bool { return covers(l.source, l.tag, source, tag) }

func covers(wantSource, wantTag, source, tag int) bool {
	return (wantSource == source || wantSource == cohort.AnySource) && (wantTag == tag || wantTag == cohort.AnyTag)
}

// find returns the index of the first envelope that has been probed and matches; -1 if there is none. m.mu
// is held.
func (m *messages) find(source, tag int) int {
	return slices.IndexFunc(m.probed, func(l *letter) bool { return covers(source, tag, l.source, l.tag) })
}

// take returns the first envelope that has been probed and matches, and takes it. m.mu is held.
func (m *messages) take(source, tag int) *letter {
	i := m.find(source, tag)
	if i < 0 {
		return nil
	}
	l := m.probed[i]
	m.probed = slices.Delete(m.probed, i, i+1)
	m.under++
	return l
}

// await waits for the envelope of a message, which then is under way: who gets it calls end.
func (c *Comm) await(m *messages, source, tag int) (*letter, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, errClosed()
	}
	if len(m.probed) > 0 {
		if l := m.take(source, tag); l != nil {
			m.mu.Unlock()
			return l, nil
		}
	}
	l := newLetter()
	l.source, l.tag = source, tag
	m.blocking = append(m.blocking, l)
	m.mu.Unlock()

	st, err := cohort.Recv(c.head, l.b[:], source, tag)

	m.mu.Lock()
	i := slices.Index(m.blocking, l)
	last := len(m.blocking) - 1
	m.blocking[i] = m.blocking[last]
	m.blocking[last] = nil
	m.blocking = m.blocking[:last]
	if err == nil {
		m.under++
	}
	m.mu.Unlock()
	return l, m.opened(l, st, err)
}

// opened takes in an envelope that has come.
func (m *messages) opened(l *letter, st cohort.Status, err error) error {
	l.source, l.tag = st.Source, st.Tag
	if err != nil {
		if errors.Is(err, cohort.ErrPeerLost) && m.isClosed() {
			err = errClosed() // while Close waited, the others have closed, which to a receive from any source is a loss
		}
		return err // and the letter is not used again: where it is wanted, the library may still write to it
	}
	if err = l.read(st.Bytes(), m.maxTag); err != nil {
		m.end()
		l.free()
	}
	return err
}

// post starts to wait for the envelope of a message: it is there already, or q gets it into l.
func (c *Comm) post(m *messages, source, tag int) (l *letter, q *cohort.Request, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, errClosed()
	}
	if l = m.take(source, tag); l != nil {
		return l, nil, nil
	}
	l = newLetter()
	if q, err = cohort.Irecv(c.head, l.b[:], source, tag); err != nil {
		l.free()
		return nil, nil, err
	}
	m.posted++
	return l, q, nil
}

// arrived is called when a posted receive is complete.
func (m *messages) arrived(l *letter, st cohort.Status, err error) error {
	m.mu.Lock()
	m.posted--
	if err == nil {
		m.under++
	} else if m.closed {
		m.change.Broadcast()
	}
	m.mu.Unlock()
	return m.opened(l, st, err)
}
