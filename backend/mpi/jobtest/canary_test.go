//go:build cgo && linux

package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// TestReceivesStayInBuffers sends messages of random lengths into buffers of other lengths, which
// lie between canaries, by every kind of receive. Nothing outside a buffer is written, the start of
// the message is inside, and status and error are right.
func TestReceivesStayInBuffers(t *testing.T) {
	rank("canaries", exchangeCanaries)
	for _, library := range inTurn(t) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", library, n), func(t *testing.T) {
				if n > 2 && testing.Short() {
					t.Skip("left out with -short: three ranks; make test-all runs it")
				}
				e := start(t, library, n, "canaries", canaryCases(t, 20000/(n*n*n-7))).must(t)
				if ends := e.lines("ok"); len(ends) != n {
					t.Errorf("%d of %d ranks have come to the end\n%s", len(ends), n, e.out)
				}
			})
		}
	}
}

const (
	margin      = 512 // of canaries at least, on either side
	longestSent = 4 << 20
	mostInRound = 24 << 20     // bytes of one round's messages
	noProgress  = patience / 2 // until a rank panics with its goroutines
)

// kind is how a message is received.
type kind int

const (
	byRecv kind = iota
	byLimited
	byMprobe
	byImprobe
	byIrecv
	byPersistent
	byEarly           // Irecv before the senders begin
	byEarlyPersistent // the same
	kinds
)

func (k kind) String() string {
	return [...]string{"Recv", "Recv with a deadline", "MessageRecv", "ImessageRecv", "Irecv", "RecvInit", "early Irecv", "early RecvInit"}[k]
}

// message is one message of a round, and the buffer of one receive, not
// necessarily of that message.
type message struct {
	id, from, to, tag int
	size, room        int
	how               kind
	send              int // a way to send
	anySource, anyTag bool

	slot []byte // the buffer with what is around it
	buf  []byte
}

func (m *message) String() string {
	return fmt.Sprintf("message %d from %d, tag %d, %d bytes; received by %v into %d bytes", m.id, m.from, m.tag, m.size, m.how, m.room)
}

// exchange is one rank of the canary test.
type exchange struct {
	w        *cohort.Comm
	limited  *cohort.Comm // with a deadline
	noLength bool         // the library does not report the length of a message that is too long
	rng      *rand.Rand
	text     []byte // source of all messages; see sent
	arena    []byte // of guardByte
	id       int

	mu   sync.Mutex
	errs []error
	now  []*message // of the current round
}

func exchangeCanaries(w *cohort.Comm) error {
	cases, rng, err := readCases()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	x := &exchange{w: w, limited: w.WithContext(ctx), rng: rng, noLength: strings.HasPrefix(w.Caps().Library, "MPICH"),
		text: make([]byte, longestSent+1<<16), arena: bytes.Repeat([]byte{guardByte}, 64<<20)}
	for i := range x.text {
		x.text[i] = byte(i*i>>7 ^ i)
	}
	dog := time.AfterFunc(noProgress, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("rank %d: no progress after %d messages: %v", w.Rank(), x.id, x.now))
	})
	defer dog.Stop()
	said := 0
	for x.id < cases {
		dog.Reset(noProgress)
		if now := x.id / 1000; now > said && w.Rank() == 0 {
			said = now
			say("so far %d messages", x.id) // resets the watchdog of the job
		}
		if x.rng.IntN(16) == 0 {
			x.around()
		} else {
			x.round()
		}
		if len(x.errs) > 0 {
			err := fmt.Errorf("rank %d, after %d messages: %w", w.Rank(), x.id, errors.Join(x.errs[:min(len(x.errs), 5)]...))
			say("%v", err) // the launcher may end the process before it is returned
			return err
		}
	}
	say("ok %d messages", x.id)
	return nil
}

func (x *exchange) wrong(format string, args ...any) {
	x.mu.Lock()
	x.errs = append(x.errs, fmt.Errorf(format, args...))
	x.mu.Unlock()
}

func (x *exchange) sent(id, size int) []byte { return x.text[id*977%(1<<16):][:size:size] }

// size draws a length, also near the bounds between the libraries' protocols.
func (x *exchange) size() int {
	r := x.rng
	switch p := r.IntN(100); {
	case p < 8:
		return 0
	case p < 30:
		return 1 + r.IntN(64)
	case p < 55:
		return 1 + r.IntN(5000)
	case p < 75:
		return 1<<(9+r.IntN(9)) + r.IntN(200) - 120
	case p < 90:
		return r.IntN(1 << 16)
	case p < 98:
		return r.IntN(1 << 19)
	}
	return r.IntN(longestSent)
}

// room draws the length of the buffer for a message of size bytes: from nothing to more than it
// needs.
func (x *exchange) room(size int) int {
	r := x.rng
	switch r.IntN(8) {
	case 0, 1:
		return size
	case 2:
		return size + r.IntN(size+100)
	case 3:
		return r.IntN(size + 1)
	case 4:
		return min(size, r.IntN(5000))
	}
	return size/3 + r.IntN(size-size/3+1)
}

// lay assigns buffers to the messages. Around each there is room for the longest message that could
// be written there.
func (x *exchange) lay(all []*message) {
	x.now = all
	longest := make([]int, x.w.Size())
	for _, m := range all {
		longest[m.to] = max(longest[m.to], m.size)
	}
	at := 0
	for _, m := range all {
		if m.to == x.w.Rank() {
			end := at + margin + m.room + max(longest[m.to]-m.room, 0) + margin
			m.slot = x.arena[at:end]
			m.buf = m.slot[margin : margin+m.room] // its capacity extends past its end
			at = end
		}
	}
}

// round sends some messages between random ranks at the same time.
func (x *exchange) round() {
	r, n, me := x.rng, x.w.Size(), x.w.Rank()
	sameTag, early := r.IntN(4) == 0, r.IntN(3) == 0 // messages with one tag are received in the order sent
	var all []*message
	total := 0
	for range 1 + r.IntN(8) {
		m := &message{id: x.id, from: r.IntN(n), to: r.IntN(n), tag: len(all) * 3, size: x.size(), send: r.IntN(4), how: kind(r.IntN(int(kinds)))}
		m.room = x.room(m.size)
		if total += m.size + m.room; total > mostInRound {
			break
		}
		if sameTag {
			m.tag = 7
			if m.how >= byEarly != early { // receives must be posted in the order of the messages
				m.how = byEarlyPersistent - m.how%2
				if !early {
					m.how -= byEarly - byIrecv
				}
			}
		}
		x.id++
		all = append(all, m)
	}
	wild, concurrent, fence := r.IntN(3), r.IntN(3) == 0, r.IntN(3)
	for _, m := range all {
		switch {
		case sameTag:
		case wild == 0:
			m.anySource = r.IntN(4) == 0 // tags tell the messages apart
		default: // any receive of a rank may get any message
			m.anySource, m.anyTag = wild == 1, true
		}
	}
	x.lay(all)

	var before, late []func()
	for _, m := range all {
		if m.to != me {
			continue
		}
		source, tag := m.from, m.tag
		if m.anySource {
			source = cohort.AnySource
		}
		if m.anyTag {
			tag = cohort.AnyTag
		}
		if m.how >= byEarly {
			before = append(before, x.post(m, source, tag, all))
		} else {
			late = append(late, func() { x.receive(m, source, tag, all) })
		}
	}
	if fence == 0 {
		x.fence()
	}
	var sends []func() error
	for _, m := range all {
		if m.from == me {
			sends = append(sends, x.send(m, !sameTag))
		}
	}
	if fence == 1 {
		x.fence()
	}
	var wg sync.WaitGroup
	for _, f := range late {
		if concurrent && !sameTag {
			wg.Go(f)
		} else {
			f()
		}
	}
	for _, f := range before {
		f()
	}
	wg.Wait()
	for _, f := range sends {
		if err := f(); err != nil {
			x.wrong("sending: %w", err)
		}
	}
	for _, m := range all {
		if m.to == me {
			x.clean(m)
		}
	}
	if !sameTag {
		x.fence() // wildcards must not get the next round's messages
	}
}

func (x *exchange) fence() {
	if err := x.w.Barrier(); err != nil {
		x.wrong("barrier: %w", err)
	}
}
