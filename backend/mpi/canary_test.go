//go:build cgo && linux

package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

var (
	canaries   = flag.Int("canaries", 0, "random `messages` and collectives of the canary tests; 0: what takes some seconds")
	canarySeed = flag.Uint64("canaryseed", 0, "the `seed` of the canary tests; 0: another each time")
)

// canaryVariable has the number of cases and the seed of a program of the canary
// tests.
const canaryVariable = "MPITEST_CANARIES"

// orders returns what a program of the canary tests is to do.
func orders(t *testing.T, usual int) string {
	t.Helper()
	n, seed := *canaries, *canarySeed
	if n == 0 {
		n = usual
		if testing.Short() {
			n /= 8
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d cases: -canaries=%d -canaryseed=%d", n, n, seed)
	return fmt.Sprintf("%s=%d %d", canaryVariable, n, seed)
}

// ordered returns the number of cases and the generator, the same on all ranks.
func ordered() (int, *rand.Rand, error) {
	var n int
	var seed uint64
	_, err := fmt.Sscan(os.Getenv(canaryVariable), &n, &seed)
	return n, rand.New(rand.NewPCG(seed, 0)), err
}

// Messages of random lengths into buffers of other lengths that lie between
// canaries, by every kind of receive: nothing outside a buffer is written, inside
// is the message's beginning, and status and error are right.
func TestCanariesOfMessages(t *testing.T) {
	program("canaries", func() error { return with(exchangeCanaries) })
	for _, library := range libraries {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", library, n), func(t *testing.T) {
				if n > 2 && testing.Short() {
					t.Skip("with -short two ranks are enough")
				}
				e := start(t, library, n, "canaries", orders(t, 20000/(n*n-3))).must(t)
				if ends := e.lines("ok"); len(ends) != n {
					t.Errorf("%d of %d ranks have come to the end\n%s", len(ends), n, e.out)
				}
			})
		}
	}
}

const (
	guardByte   = 0xa5
	margin      = 512 // of canaries at least, on either side
	longestSent = 4 << 20
	mostInRound = 24 << 20 // bytes of one round's messages
	noProgress  = 15 * time.Second
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
	w       *cohort.Comm
	limited *cohort.Comm // with a deadline
	blind   bool         // the library does not say what was too long
	rng     *rand.Rand
	text    []byte // what is sent: message id has text[at(id):]
	arena   []byte // of guardByte
	id      int

	mu   sync.Mutex
	errs []error
	now  []*message // of the round under way
}

func exchangeCanaries(w *cohort.Comm) error {
	cases, rng, err := ordered()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	x := &exchange{w: w, limited: w.WithContext(ctx), rng: rng, blind: strings.HasPrefix(w.Caps().Library, "MPICH"),
		text: make([]byte, longestSent+1<<16), arena: bytes.Repeat([]byte{guardByte}, 64<<20)}
	for i := range x.text {
		x.text[i] = byte(i*i>>7 ^ i)
	}
	dog := time.AfterFunc(noProgress, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("rank %d: no progress after %d messages: %v", w.Rank(), x.id, x.now))
	})
	defer dog.Stop()
	for x.id < cases {
		dog.Reset(noProgress)
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

// size draws a length: near the bounds between the libraries' protocols as well.
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

// room draws the length of the buffer for a message of size bytes: down to a
// third, or nothing at all.
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

// lay gives the messages buffers. Around each there is room for the longest
// message that could be written there.
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
			m.buf = m.slot[margin : margin+m.room] // its capacity goes on
			at = end
		}
	}
}

// round sends some messages between any ranks, all at once.
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

// send starts a send, and returns how to wait for it.
func (x *exchange) send(m *message, any bool) func() error {
	buf := x.sent(m.id, m.size)
	start := cohort.Isend[byte]
	switch {
	case m.send == 1:
		start = cohort.Issend[byte]
	case m.send == 2 && any:
		done := make(chan error, 1)
		go func() { done <- cohort.Send(x.w, buf, m.to, m.tag) }()
		return func() error { return <-done }
	case m.send == 3:
		op, err := cohort.SendInit(x.w, buf, m.to, m.tag)
		if err == nil {
			err = op.Start()
		}
		return func() error {
			if err != nil {
				return err
			}
			_, err := op.Wait()
			return errors.Join(err, op.Close())
		}
	}
	q, err := start(x.w, buf, m.to, m.tag)
	return func() error {
		if err != nil {
			return err
		}
		_, err := q.Wait()
		return err
	}
}

// post starts a receive, and returns how to end it.
func (x *exchange) post(m *message, source, tag int, all []*message) func() {
	if m.how == byIrecv || m.how == byEarly {
		q, err := cohort.Irecv(x.w, m.buf, source, tag)
		return func() {
			var st cohort.Status
			if err == nil {
				st, err = q.Wait()
			}
			x.check(m, st, err, all)
		}
	}
	op, err := cohort.RecvInit(x.w, m.buf, source, tag)
	if err == nil {
		err = op.Start()
	}
	return func() {
		var st cohort.Status
		if err == nil {
			st, err = op.Wait()
		}
		x.check(m, st, err, all)
		if err := op.Close(); err != nil {
			x.wrong("%v: Close: %w", m, err)
		}
	}
}

func (x *exchange) receive(m *message, source, tag int, all []*message) {
	var st, probed cohort.Status
	var err error
	switch m.how {
	case byRecv:
		st, err = cohort.Recv(x.w, m.buf, source, tag)
	case byLimited:
		st, err = cohort.Recv(x.limited, m.buf, source, tag)
	case byMprobe, byImprobe:
		var g *cohort.Message
		if m.how == byMprobe {
			g, probed, err = x.w.Mprobe(source, tag)
		} else {
			for ok := false; !ok && err == nil; {
				g, probed, ok, err = x.w.Improbe(source, tag)
			}
		}
		if err != nil {
			break
		}
		if m.how == byMprobe {
			st, err = cohort.MessageRecv(g, m.buf)
		} else {
			var q *cohort.Request
			if q, err = cohort.ImessageRecv(g, m.buf); err == nil {
				st, err = q.Wait()
			}
		}
		if st != probed {
			x.wrong("%v: the status is %+v, that of the probe %+v", m, st, probed)
		}
	default:
		x.post(m, source, tag, all)()
		return
	}
	x.check(m, st, err, all)
}

// check looks at what a receive has done.
func (x *exchange) check(m *message, st cohort.Status, err error, all []*message) {
	got := m
	if m.anySource || m.anyTag {
		got = nil
		for _, c := range all {
			if c.to == m.to && c.from == st.Source && c.tag == st.Tag {
				got = c
			}
		}
		if got == nil {
			x.wrong("%v: the status %+v is of none that was sent (%v)", m, st, err)
			return
		}
	}
	long := got.size > m.room
	// MPICH neither says how long it was nor keeps the beginning.
	blind := long && x.blind && m.how != byMprobe && m.how != byImprobe
	if st.Source != got.from || st.Tag != got.tag || cohort.Count[byte](st) != got.size && !(blind && st.Bytes() == cohort.Undefined) {
		x.wrong("%v: the status is %d bytes from %d, tag %d (%v), want %d from %d, tag %d", m,
			cohort.Count[byte](st), st.Source, st.Tag, err, got.size, got.from, got.tag)
	}
	switch {
	case !long && err != nil:
		x.wrong("%v: %w", m, err)
	case long && !errors.Is(err, cohort.ErrTruncate):
		x.wrong("%v: got error %v, want %v: %d bytes had come", m, err, cohort.ErrTruncate, got.size)
	}
	n := min(got.size, m.room)
	if blind && notGuard(m.buf) < 0 {
		n = 0
	}
	if want := x.sent(got.id, n); !bytes.Equal(m.buf[:n], want) {
		x.wrong("%v: of the first %d bytes number %d differs from what was sent", m, n, firstDifference(m.buf[:n], want))
	}
	x.outside(m, n)
}

// outside checks that of a slot only the first n bytes of the buffer have been
// written.
func (x *exchange) outside(m *message, n int) {
	if i := notGuard(m.slot[:margin]); i >= 0 {
		x.wrong("%v: written %d bytes before the buffer", m, margin-i)
	}
	if i := notGuard(m.slot[margin+n:]); i >= 0 {
		x.wrong("%v: written %d bytes behind the %d that belong into the buffer, %d in all", m, i, n,
			len(m.slot)-margin-n-bytes.Count(m.slot[margin+n:], []byte{guardByte}))
	}
}

// clean looks at a slot once more, after all of the round is over, and makes it
// new.
func (x *exchange) clean(m *message) {
	if i := notGuard(m.slot[margin+m.room:]); i >= 0 {
		x.wrong("%v: written %d bytes behind the buffer, in the end", m, i)
	}
	fill(m.buf)
}

// around is a Sendrecv with the neighbours.
func (x *exchange) around() {
	n, me := x.w.Size(), x.w.Rank()
	all := make([]*message, n)
	for i := range all {
		all[i] = &message{id: x.id, from: i, to: (i + 1) % n, tag: 5, size: x.size() % (1 << 20)}
		all[i].room = x.room(all[i].size)
		x.id++
	}
	x.lay(all)
	out, in := all[me], all[(me+n-1)%n]
	st, err := cohort.Sendrecv(x.w, x.sent(out.id, out.size), out.to, 5, in.buf, in.from, 5)
	x.check(in, st, err, all)
	x.clean(in)
}

var guards = bytes.Repeat([]byte{guardByte}, 64<<10)

// notGuard returns where the first byte is that is not guardByte, -1 if all are.
func notGuard(b []byte) int {
	for i := 0; i < len(b); i += len(guards) {
		part := b[i:min(i+len(guards), len(b))]
		if !bytes.Equal(part, guards[:len(part)]) {
			return i + firstDifference(part, guards)
		}
	}
	return -1
}

func fill(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, guards):]
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
