package tasks

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
)

// kind says what a message means.
type kind byte

const (
	runTask  kind = iota // to a worker: its next task
	stopWork             // to a worker: there are no more
	done                 // to rank 0: a result
	failed               // to rank 0: a task's failure
	goodbye              // to rank 0: the worker has stopped
)

// failure is what rank 0 learns of a task that has failed on another rank.
type failure struct {
	Text  string
	Stack []byte // of a panic
}

// message is a message between rank 0 and a worker.
type message struct {
	kind  kind
	index int // of the task
	body  []byte

	from int          // rank of the communicator
	on   *cohort.Comm // that it came on
	err  error        // why nothing more comes on it
}

const headSize = 9

// send sends a message. It does not wait for an answer.
func send(c *cohort.Comm, dest int, k kind, index int, body []byte) error {
	b := make([]byte, headSize, headSize+len(body))
	b[0] = byte(k)
	binary.LittleEndian.PutUint64(b[1:], uint64(index))
	return cohort.Send(c, append(b, body...), dest, 0)
}

// inbox receives messages in a goroutine, so that its rank can wait for other things too.
type inbox struct {
	messages chan message
	closed   chan struct{}
}

func newInbox() *inbox { return &inbox{make(chan message), make(chan struct{})} }

// listen receives from source on c until last says that a message was the last, or c ends.
func (b *inbox) listen(c *cohort.Comm, source int, last func(kind) bool) {
	for {
		m := message{on: c}
		buf, st, err := cohort.RecvAppend[byte](c, nil, source, 0)
		switch {
		case err != nil:
			m.err = err
		case len(buf) < headSize:
			m.err = errShort
		default:
			m.kind, m.index, m.body, m.from = kind(buf[0]), int(binary.LittleEndian.Uint64(buf[1:])), buf[headSize:], st.Source
		}
		select {
		case b.messages <- m:
		case <-b.closed:
			return
		}
		if m.err != nil || last(m.kind) {
			return
		}
	}
}

var errShort = errors.New("tasks: received a message that package tasks did not send")

// shrink returns a communicator of the survivors after a loss. It returns cause if cause is not a loss, or if
// the backend cannot continue. It closes c. It ends the operations of the others on c first, because they may wait on c
// for a rank that leaves it without being lost, such as this one.
func shrink(c *cohort.Comm, cause error) (*cohort.Comm, error) {
	defer c.Close()
	err := c.Revoke()
	if errors.Is(err, cohort.ErrNotSupported) {
		(*comm.Comm)(c).Backend().Break(backend.PeerLeft("rank %d has left the loop", c.Rank()))
		return nil, cause
	}
	if !errors.Is(cause, cohort.ErrPeerLost) && !errors.Is(cause, cohort.ErrBroken) {
		return nil, cause
	}
	d, err := c.Shrink()
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	return d, nil
}

// lost returns cause, a loss that ends the loop, as an ErrPeerLost. It is an ErrBroken if another rank learned of
// the loss first and revoked the communicator.
func lost(cause error) error {
	if errors.Is(cause, cohort.ErrPeerLost) {
		return cause
	}
	return fmt.Errorf("%w: %w", cohort.ErrPeerLost, cause)
}
