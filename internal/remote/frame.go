//go:build unix

package remote

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// protocol is the version of the protocol between launcher and agent.
const protocol = 10

// kind is the kind of a frame.
type kind byte

// Frames that the launcher sends.
const (
	kindWork   kind = 'W' // work
	kindFile   kind = 'F' // a piece of a program; empty after the last
	kindGo     kind = 'G' // start the ranks
	kindSignal kind = 'S' // pass on this signal, one byte
	kindInput  kind = 'I' // for rank 0; empty at its end
	kindEnd    kind = 'E' // end the ranks
	kindAsk    kind = 'Q' // does the job continue after losses?
	kindNote   kind = 'N' // a rank of the job has ended with status 0: note which ranks are stopped
	kindAlone  kind = 'L' // all other ranks of the job have ended: end those that have been stopped since kindNote
	kindStart  kind = 'P' // start a process for a lost rank: its id and its rank, 4 bytes each
	kindTell   kind = 'M' // for a process: its id, 4 bytes, and a generation.Message
	kindKill   kind = 'X' // end a process: its id, 4 bytes
	kindLast   kind = 'O' // all processes have ended, and no others will be started
	kindBye    kind = 'B' // all ranks of the job have ended; one byte, 1: send the files of the flight recorder
)

// Frames that the agent sends.
const (
	kindHello   kind = 'h' // hello, the first frame
	kindNeed    kind = 'n' // the program with this path is not here: send it
	kindReady   kind = 'r' // the ranks can be started; a note for the user, or empty
	kindFault   kind = 'f' // the ranks cannot be started, and why
	kindOutput  kind = 'o' // one byte, 1 or 2 for standard output or error, then whole lines of ranks (or, without tags, any bytes)
	kindCopy    kind = 'c' // rank, 4 bytes; 0 or 1 for standard output or error; and the bytes for the rank's file
	kindExit    kind = 'x' // job.Exit, the end of a rank
	kindDrained kind = 'd' // the output of a rank that ended has been sent: its id, 4 bytes
	kindRequest kind = 'q' // of a process: its id, 4 bytes, and a generation.Request
	kindLog     kind = 'l' // a sentence about the ranks
	kindAnswer  kind = 'a' // to kindAsk, one byte
	kindStopped kind = 's' // one byte, 1: all ranks that run have been stopped since kindNote; 0: no longer
	kindEnded   kind = 'e' // all ranks have ended, and their output has been sent
	kindFlight  kind = 'y' // a file of the flight recorder: rank, 4 bytes, and its contents
	kindDone    kind = 'z' // the last frame
)

// Frames that both send.
const (
	kindPing kind = 'p' // shows that the sender is alive; the agent answers with one
	kindAck  kind = 'k' // so many bytes of output or input have been used, 4 bytes
)

const (
	headSize  = 5
	maxJSON   = 16 << 20 // a command line and an environment: Linux takes 6 MiB at most
	maxText   = 64 << 10
	maxTell   = 512 << 10 // a line of 64 KiB from a process, with every byte escaped
	maxChunk  = 64 << 10
	maxOutput = 1 + spawn.MaxWrite
	keptQueue = 1 << 20 // a longer queue of frames is not used again
	maxFlight = 4 + 4<<20
)

// limits are the longest payloads of frames in one direction. Kinds that are missing are not sent in that direction.
type limits map[kind]uint32

var toAgent = limits{
	kindWork: maxJSON, kindFile: maxChunk, kindGo: 0, kindSignal: 1, kindInput: maxChunk, kindEnd: 0, kindAsk: 0,
	kindNote: 0, kindAlone: 0, kindStart: 8, kindTell: 4 + maxTell, kindKill: 4, kindLast: 0,
	kindBye: 1, kindPing: 0, kindAck: 4,
}

var toLauncher = limits{
	kindHello: maxText, kindNeed: maxText, kindReady: maxText, kindFault: maxText, kindOutput: maxOutput, kindCopy: maxOutput + 4, kindExit: maxText,
	kindDrained: 4, kindRequest: 4 + maxTell, kindLog: maxText, kindAnswer: 1, kindStopped: 1, kindEnded: 0, kindFlight: maxFlight, kindDone: 0, kindPing: 0, kindAck: 4,
}

// hello describes an agent and its host.
type hello struct {
	Protocol   int
	Version    string // of cohort
	Connection string // SSH_CONNECTION, or what srun sets instead: the launcher's address and port as the host sees them, and its own
	Usable     int    // processors
}

// work describes what an agent has to do.
type work struct {
	Job            string
	First, Size    int
	Most           int       // ranks that the job may have, where others are started in place of those that are lost; else 0
	Programs       []program // of this host's ranks
	Env            []spawn.Text
	Folder         spawn.Text // the ranks' working directory
	Bind           string
	Tag, Resilient bool
	Show           spawn.Show
	Copy           bool   // the launcher writes each rank's output to a file
	Flight         bool   // ranks write files of the flight recorder
	Secret         string // in the form of its file
}

// program describes what ranks execute.
type program struct {
	Path  spawn.Text // where the launcher has it; a name without a slash is looked up in the host's PATH
	Sum   string     // SHA-256 in hexadecimal; empty to use the host's file at Path
	Args  []spawn.Text
	Ranks int
}

func appendFrame(b []byte, k kind, payload ...[]byte) []byte {
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	b = binary.LittleEndian.AppendUint32(append(b, byte(k)), uint32(n))
	for _, p := range payload {
		b = append(b, p...)
	}
	return b
}

// readFrame reads a frame whose kind and length are among those allowed. It allocates memory only for bytes that
// really arrive.
func readFrame(r io.Reader, allowed limits) (kind, []byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	k, n := kind(head[0]), binary.LittleEndian.Uint32(head[1:])
	limit, ok := allowed[k]
	if !ok {
		return 0, nil, fmt.Errorf("unknown message kind %q: not from cohort, or from another version", head[0])
	}
	if n > limit {
		return 0, nil, fmt.Errorf("message of kind %q has %d bytes, want at most %d", head[0], n, limit)
	}
	var b bytes.Buffer
	if m, err := io.CopyN(&b, r, int64(n)); m < int64(n) {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return k, b.Bytes(), nil
}

// decode reads a payload in JSON.
func decode[T any](payload []byte, what string) (v T, err error) {
	if err = json.Unmarshal(payload, &v); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return v, err
}

// number reads a payload that is a number.
func number(payload []byte) (uint32, error) {
	if len(payload) != 4 {
		return 0, fmt.Errorf("number of %d bytes, want 4", len(payload))
	}
	return binary.LittleEndian.Uint32(payload), nil
}

// yes is a payload of one byte, 1 for true.
func yes(is bool) []byte {
	if is {
		return []byte{1}
	}
	return []byte{0}
}

func isYes(payload []byte) bool { return len(payload) == 1 && payload[0] == 1 }

func numberBytes(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

// sendTo sends a frame about a process: its id, and v in JSON.
func (l *link) sendTo(k kind, id int, v any) {
	b, _ := json.Marshal(v)
	l.send(k, numberBytes(id), b)
}

// decodeOf reads the payload of such a frame.
func decodeOf[T any](payload []byte) (id int, v T, err error) {
	if len(payload) < 4 {
		return 0, v, fmt.Errorf("message about a process of %d bytes, want at least 4", len(payload))
	}
	v, err = decode[T](payload[4:], "a message about a process")
	return int(binary.LittleEndian.Uint32(payload)), v, err
}

// A link sends frames. No method but room and flush waits for the other end.
type link struct {
	w io.WriteCloser

	mu      sync.Mutex
	changed sync.Cond
	queue   []byte
	writing bool
	closing bool
	err     error // why nothing more is sent
	done    chan struct{}
}

func newLink(w io.WriteCloser) *link {
	l := &link{w: w, done: make(chan struct{})}
	l.changed.L = &l.mu
	go l.run()
	return l
}

func (l *link) send(k kind, payload ...[]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.closing {
		l.queue = appendFrame(l.queue, k, payload...)
		l.changed.Broadcast()
	}
}

func (l *link) sendJSON(k kind, v any) {
	b, _ := json.Marshal(v) // structs of strings and numbers have no error
	l.send(k, b)
}

// room waits until little is queued, and returns why nothing more can be sent.
func (l *link) room() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && len(l.queue) > 4*maxChunk {
		l.changed.Wait()
	}
	return l.err
}

// flush waits until all queued frames have been written, but not longer than limit.
func (l *link) flush(limit time.Duration) {
	late := time.AfterFunc(limit, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})
	defer late.Stop()
	end := time.Now().Add(limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && (len(l.queue) > 0 || l.writing) && time.Now().Before(end) {
		l.changed.Wait()
	}
}

// close makes the link send the queued frames, close the connection, and then close done. It does not wait.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	l.changed.Broadcast()
}

func (l *link) run() {
	defer close(l.done)
	defer l.w.Close()
	var b []byte
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.closing {
			l.changed.Wait()
		}
		if len(l.queue) == 0 {
			l.mu.Unlock()
			return
		}
		b, l.queue, l.writing = l.queue, b[:0], true
		l.changed.Broadcast()
		l.mu.Unlock()
		_, err := l.w.Write(b)
		if cap(b) > keptQueue {
			b = nil
		}
		l.mu.Lock()
		if l.writing = false; err != nil {
			l.err, l.queue = err, nil
		}
		l.changed.Broadcast()
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
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
