//go:build unix

package remote

import (
	"bufio"
	"encoding/gob"
	"io"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// protocol is the version of the protocol between launcher and agent.
const protocol = 14

// maxChunk is the number of bytes of a program, or of input, in one message.
const maxChunk = 64 << 10

// A message is what launcher and agent send each other, encoded by gob. Its kind says which of the fields count.
type message struct {
	Kind kind
	ID   int    // of a process, or a rank
	N    int    // a number that the kind names
	Yes  bool   // an answer
	Data []byte // bytes, or a text

	Hello   *hello
	Work    *work
	Exit    *job.Exit
	Request *generation.Request // of the process ID
	Tell    *generation.Message // for the process ID

	written chan struct{} // closed when the message has been written; may be nil
}

type kind byte

// Messages that the launcher sends.
const (
	kindWork   kind = 'W' // Work
	kindFile   kind = 'F' // Data is a piece of a program; empty after the last
	kindGo     kind = 'G' // start the ranks
	kindSignal kind = 'S' // pass on the signal N
	kindInput  kind = 'I' // Data is for rank 0; empty at its end
	kindEnd    kind = 'E' // end the ranks
	kindAsk    kind = 'Q' // has a rank requested that the job continues after losses?
	kindNote   kind = 'N' // a rank of the job has ended with status 0: note which ranks are stopped
	kindAlone  kind = 'L' // all other ranks of the job have ended: end those that have been stopped since kindNote
	kindStart  kind = 'P' // start a process ID for a lost rank N
	kindTell   kind = 'M' // Tell
	kindKill   kind = 'X' // end the process ID
	kindLast   kind = 'O' // all processes have ended, and no others will be started
	kindBye    kind = 'B' // all ranks of the job have ended; if Yes, send the files of the flight recorder
)

// Messages that the agent sends.
const (
	kindHello   kind = 'h' // Hello, the first message
	kindNeed    kind = 'n' // the program with the path Data is not here: send it
	kindReady   kind = 'r' // the ranks can be started; Data is a note for the user, or empty
	kindFault   kind = 'f' // the ranks cannot be started; Data says why
	kindOutput  kind = 'o' // Data is whole lines of ranks (or, without tags, any bytes) for standard output (N = 0) or error (1)
	kindCopy    kind = 'c' // Data is for the file of rank ID, of its standard output (N = 0) or error (1)
	kindExit    kind = 'x' // Exit
	kindDrained kind = 'd' // the output of the process ID, which has ended, has been sent
	kindRequest kind = 'q' // Request
	kindLog     kind = 'l' // Data is a sentence about the ranks
	kindAnswer  kind = 'a' // Yes answers kindAsk
	kindGoesOn  kind = 'g' // a rank has requested that the job continues after losses
	kindStopped kind = 's' // Yes: all ranks that run have been stopped since kindNote; else no longer
	kindDrains  kind = 'v' // all processes have ended, also those that ranks left, and their last output is being sent
	kindEnded   kind = 'e' // all ranks have ended, and their output has been sent
	kindFlight  kind = 'y' // Data is the file of the flight recorder of rank ID
	kindDone    kind = 'z' // the last message
)

// Messages that both send.
const (
	kindPing kind = 'p' // shows that the sender is alive
	kindAck  kind = 'k' // N bytes of output or input have been used
)

type hello struct {
	Protocol   int
	Version    string // of cohort
	Connection string // SSH_CONNECTION, or what srun sets instead: the launcher's address and port as the host sees them, and its own
	Usable     int    // processors
}

// work describes what an agent has to do.
type work struct {
	Job         string
	First, Size int
	Most        int       // ranks that the job may have, where others are started in place of those that are lost; else 0
	Programs    []program // of this host's ranks
	Env         []string
	Folder      string // the ranks' working directory
	Bind        spawn.Bind
	Tag         bool
	Show        spawn.Show
	Copy        bool   // the launcher writes each rank's output to a file
	Flight      bool   // ranks write files of the flight recorder
	Secret      string // in the form of its file
}

// program describes what ranks execute. Its path is the launcher's; a name without a slash is looked up in the host's PATH.
type program struct {
	spawn.Program
	Sum string // SHA-256 in hexadecimal; empty to use the host's file at Path
}

// A queue has a goroutine handle what is added to it. add does not wait.
type queue[T any] struct {
	done chan struct{} // closed when all has been handled after close, or handling has failed
	err  error         // why; read after done

	mu      sync.Mutex
	changed sync.Cond
	items   []T
	closed  bool
}

// newQueue returns a queue whose goroutine calls handle with what has been added since the last call, until it fails.
func newQueue[T any](handle func([]T) error) *queue[T] {
	q := &queue[T]{done: make(chan struct{})}
	q.changed.L = &q.mu
	go func() {
		defer close(q.done)
		for q.err == nil {
			q.mu.Lock()
			for len(q.items) == 0 && !q.closed {
				q.changed.Wait()
			}
			items := q.items
			q.items = nil
			q.mu.Unlock()
			if len(items) == 0 {
				return
			}
			if q.err = handle(items); q.err != nil {
				q.close()
			}
		}
	}()
	return q
}

func (q *queue[T]) add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.items = append(q.items, item)
		q.changed.Signal()
	}
}

// close ends the queue when what has been added is handled. It does not wait.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Signal()
}

// A link sends messages to the other end.
type link struct{ *queue[message] }

// newLink returns a link that closes w at its end.
func newLink(w io.WriteCloser) *link {
	b := bufio.NewWriter(w)
	to := gob.NewEncoder(b)
	l := &link{newQueue(func(messages []message) error {
		for i := range messages {
			if err := to.Encode(&messages[i]); err != nil {
				return err
			}
		}
		if err := b.Flush(); err != nil {
			return err
		}
		for _, m := range messages {
			if m.written != nil {
				close(m.written)
			}
		}
		return nil
	})}
	go func() {
		<-l.done
		w.Close()
	}()
	return l
}

func (l *link) send(m message) { l.add(m) }

func (l *link) text(k kind, text string) { l.send(message{Kind: k, Data: []byte(text)}) }

// say sends a message that has only a kind.
func (l *link) say(k kind) { l.send(message{Kind: k}) }

// deliver sends a message, and waits until it has been written, late receives, or nothing more can be sent.
func (l *link) deliver(m message, late <-chan time.Time) error {
	m.written = make(chan struct{})
	l.send(m)
	select {
	case <-m.written:
	case <-late:
	case <-l.done:
		return l.err
	}
	return nil
}

// A credit is how many bytes may still be sent before the other end has used some.
type credit struct {
	mu      sync.Mutex
	changed sync.Cond
	left    int
	closed  bool
}

func newCredit(window int) *credit {
	c := &credit{left: window}
	c.changed.L = &c.mu
	return c
}

// take waits until something may be sent and takes n for it; false once it is closed.
func (c *credit) take(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.left <= 0 && !c.closed {
		c.changed.Wait()
	}
	c.left -= n
	return !c.closed
}

func (c *credit) give(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left += n
	c.changed.Broadcast()
}

func (c *credit) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.changed.Broadcast()
}
