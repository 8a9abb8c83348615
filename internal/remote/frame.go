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
)

// protocol is the version of what launcher and agent say to each other.
const protocol = 2

// kind is what a frame is.
type kind byte

// What the launcher sends.
const (
	kindWork   kind = 'W' // work
	kindFile   kind = 'F' // a piece of the program; empty after the last
	kindGo     kind = 'G' // start the ranks
	kindSignal kind = 'S' // pass on this signal, one byte
	kindInput  kind = 'I' // for rank 0; empty at its end
	kindEnd    kind = 'E' // end the ranks
	kindAsk    kind = 'Q' // does the job go on after losses?
	kindBye    kind = 'B' // all ranks of the job have ended; one byte, 1: send the files of the flight recorder
)

// What the agent sends.
const (
	kindHello   kind = 'h' // hello, first of all
	kindNeed    kind = 'n' // the program is not here: send it
	kindReady   kind = 'r' // ready
	kindFault   kind = 'f' // the ranks cannot be started, and why
	kindOutput  kind = 'o' // one byte, 1 or 2 for standard output or error, then whole lines of ranks (or what comes, without tags)
	kindExit    kind = 'x' // rankExit
	kindDrained kind = 'd' // the output of a rank that ended has been sent: its number, 4 bytes
	kindLog     kind = 'l' // a sentence about the ranks
	kindAnswer  kind = 'a' // to kindAsk, one byte
	kindEnded   kind = 'e' // all ranks have, and their output has been sent
	kindFlight  kind = 'y' // a file of the flight recorder: rank, 4 bytes, and what is in it
	kindDone    kind = 'z' // nothing will follow
)

// What both send.
const (
	kindPing kind = 'p' // to be heard of
	kindAck  kind = 'k' // so many bytes of output or input have been used, 4 bytes
)

const (
	headSize  = 5
	maxJSON   = 16 << 20 // a command line and an environment: Linux takes 6 MiB at most
	maxText   = 64 << 10
	maxChunk  = 64 << 10
	maxOutput = 1 + 3<<20 // what internal/spawn writes at once: 64 KiB and a line, of 1 MiB and its tag
	maxFlight = 4 + 4<<20
)

// limits are the longest payloads of frames in one direction. A kind that is not there is not sent there.
type limits map[kind]uint32

var toAgent = limits{
	kindWork: maxJSON, kindFile: maxChunk, kindGo: 0, kindSignal: 1, kindInput: maxChunk, kindEnd: 0, kindAsk: 0,
	kindBye: 1, kindPing: 0, kindAck: 4,
}

var toLauncher = limits{
	kindHello: maxText, kindNeed: 0, kindReady: maxText, kindFault: maxText, kindOutput: maxOutput, kindExit: maxText,
	kindDrained: 4, kindLog: maxText, kindAnswer: 1, kindEnded: 0, kindFlight: maxFlight, kindDone: 0, kindPing: 0, kindAck: 4,
}

// hello is what an agent says of itself.
type hello struct {
	Protocol   int
	Version    string // of cohort
	OS, Arch   string
	Host       string // its own name for itself
	Connection string // SSH_CONNECTION: the launcher's address and port as the host sees them, and its own
	Usable     int    // processors
}

// text and texts are strings of which nobody says that they are UTF-8, such as arguments and names of files. In
// JSON they are their bytes: as a string they would be changed.
type (
	text  string
	texts []string
)

func (t text) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(t)) }

func (t *text) UnmarshalJSON(b []byte) error {
	var v []byte
	err := json.Unmarshal(b, &v)
	*t = text(v)
	return err
}

func (t texts) MarshalJSON() ([]byte, error) {
	all := make([][]byte, len(t))
	for i, s := range t {
		all[i] = []byte(s)
	}
	return json.Marshal(all)
}

func (t *texts) UnmarshalJSON(b []byte) error {
	var all [][]byte
	err := json.Unmarshal(b, &all)
	*t = nil
	for _, s := range all {
		*t = append(*t, string(s))
	}
	return err
}

// work is what an agent is to do.
type work struct {
	Job, Backend       string
	First, Ranks, Size int
	Program            program
	Args, Env          texts
	Folder             text // where the ranks run
	Bind               string
	Tag, Resilient     bool
	Flight             bool   // ranks are to leave the files of the flight recorder
	Secret             string // in the form of its file
}

// program is what ranks execute.
type program struct {
	Name    text   // as the user wrote it, for errors
	Path    text   // where the launcher has it
	Command bool   // a name without a slash: looked for in the host's own PATH
	Sum     string // SHA-256 in hexadecimal; empty to take what is at Path
	Size    int64
}

// ready is what an agent says before ranks are started.
type ready struct {
	Note string // what the user may want to know
}

// rankExit is how a rank ended.
type rankExit struct {
	Rank, Status int
	How, After   string
	GoesOn       bool // the job goes on after losses, by what is known there
	Aborted      bool // the rank has aborted the job
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

// readFrame reads a frame whose kind and length are among those allowed. What it allocates grows
// with what really comes.
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

func numberBytes(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

// A link sends frames. Sending never waits for the other end, except for room.
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
	b, err := json.Marshal(v)
	if err != nil { // of structs of strings and numbers: it does not happen
		b = nil
	}
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

// flush waits until all that was queued has been taken, but not longer than limit.
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

// close sends what is queued, closes the other end's input, and does not wait for either; done is
// closed then.
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
		if cap(b) > maxOutput {
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
