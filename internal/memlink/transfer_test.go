//go:build linux

package memlink

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// completer notes which transfers have ended.
type completer struct {
	sent     []*Transfer
	received map[*Transfer]error
	why      error // of Withdrawn
}

func (c *completer) Sent(t *Transfer)                { c.sent = append(c.sent, t) }
func (c *completer) Withdrawn(*Transfer) error       { return c.why }
func (c *completer) Received(t *Transfer, err error) { c.received[t] = err }

func newCompleter() *completer { return &completer{received: map[*Transfer]error{}} }

// step steps once.
func step(t *testing.T, l *end, c *completer) bool {
	t.Helper()
	moved, err := l.Step(c)
	if err != nil {
		t.Fatal(err)
	}
	return moved
}

// started returns the two ends of a transfer into buf that has been accepted.
func started(t *testing.T, a, b *end, msg, buf []byte) (s, r *Transfer) {
	t.Helper()
	s, r = &Transfer{}, &Transfer{}
	addr, ok := a.Announce(s, msg)
	if !ok || !b.Valid(s.Token()) || !b.Announced(s.Token()) || !b.Accept(r, s.Token(), addr, buf) || !s.Active() || !r.Active() {
		t.Fatal("a transfer does not start")
	}
	return s, r
}

// idle checks that nothing is kept of any transfer.
func idle(t *testing.T, a, b *end) {
	t.Helper()
	if a.Busy() || b.Busy() || len(a.spare) != descs {
		t.Errorf("at the end the sender is busy: %v, the receiver: %v; of %d descs %d are free", a.Busy(), b.Busy(), descs, len(a.spare))
	}
}

func TestTransferCopiesMessage(t *testing.T) {
	const canary = 64
	a, b := pair(t, Config{Data: 4096, Copies: true})
	for _, n := range []int{0, 1, 16 << 10, 16<<10 + 1, 8*chunkMax + 13, 2<<20 + 5} {
		for _, room := range []int{n, n / 2, 0} {
			for _, who := range []string{"the receiver", "the sender", "both"} {
				name := fmt.Sprintf("%d bytes into %d, copied by %s", n, room, who)
				msg, all := pattern(n, room), bytes.Repeat([]byte{0xa5}, room+2*canary)
				buf := all[canary : canary+room]
				s, r := started(t, a, b, msg, buf)
				as, bs := newCompleter(), newCompleter()
				if who == "the sender" {
					for step(t, a, as) {
					}
					if !bytes.Equal(buf, msg[:room]) {
						t.Errorf("%s: the sender has not copied it", name)
					}
				}
				for len(bs.received) == 0 {
					step(t, b, bs)
					if who == "both" {
						step(t, a, as)
					}
				}
				for len(as.sent) == 0 {
					if !step(t, a, as) {
						t.Fatalf("%s: the sender does not see the end", name)
					}
				}
				if err, ok := bs.received[r]; !ok || err != nil || as.sent[0] != s || r.Active() || s.Active() {
					t.Fatalf("%s: ends with %v, %v", name, bs.received, as.sent)
				}
				if edge := bytes.Repeat([]byte{0xa5}, canary); !bytes.Equal(buf, msg[:room]) || !bytes.Equal(all[:canary], edge) || !bytes.Equal(all[canary+room:], edge) {
					t.Fatalf("%s: wrong data", name)
				}
				idle(t, a, b)
			}
		}
	}
	if a.bells == 0 || b.bells == 0 {
		t.Errorf("the ends have woken each other %d and %d times", a.bells, b.bells)
	}
}

func TestAnnouncementsAreLimitedAndRevocable(t *testing.T) {
	a, b := pair(t, Config{Data: 4096, Copies: true})
	var all [descs]Transfer
	for i := range all {
		if _, ok := a.Announce(&all[i], []byte{1}); !ok {
			t.Fatalf("announcement %d is refused", i)
		}
	}
	if _, ok := a.Announce(&Transfer{}, []byte{1}); ok {
		t.Errorf("%d announcements at once", descs+1)
	}
	old := all[3].Token()
	if !a.Revoke(&all[3]) || all[3].Active() || b.Announced(old) || b.Accept(&Transfer{}, old, 0, nil) {
		t.Error("a revoked message is still announced")
	}
	addr, ok := a.Announce(&all[3], []byte{2})
	if !ok || b.Announced(old) || b.Accept(&Transfer{}, old, 0, nil) {
		t.Error("an old announcement is taken for the new one in its place")
	}
	if !b.Accept(&Transfer{}, all[3].Token(), addr, make([]byte, 1)) || a.Revoke(&all[3]) {
		t.Error("an accepted message can be revoked")
	}
	as, bs := newCompleter(), newCompleter()
	step(t, b, bs)
	for step(t, a, as) {
	}
	if !slices.Equal(as.sent, []*Transfer{&all[3]}) {
		t.Errorf("%d messages are sent, want the accepted one", len(as.sent))
	}
	for i := range all {
		if all[i].Active() && !a.Withdraw(&all[i]) {
			t.Errorf("message %d cannot be withdrawn", i)
		}
	}
	idle(t, a, b)
	for _, token := range []uint64{descs, 0xff, 1 << 40, 1<<64 - 1} {
		if b.Valid(token) {
			t.Errorf("%#x is taken for a token", token)
		}
	}
}

// TestWithdrawnMessageIsNotReceived has a sender give up a message of which a part is copied, and reuse its
// buffer: the receiver does not get what the buffer holds afterwards, but an error.
func TestWithdrawnMessageIsNotReceived(t *testing.T) {
	a, b := pair(t, Config{Data: 4096, Copies: true})
	msg, buf := make([]byte, 1<<20), make([]byte, 1<<20)
	s, r := started(t, a, b, msg, buf)
	bs := newCompleter()
	step(t, b, bs)
	if !a.Withdraw(s) {
		t.Fatal("a message that is not received cannot be withdrawn")
	}
	copy(msg, bytes.Repeat([]byte{0xff}, len(msg)))
	next, other := pattern(1000, 1), make([]byte, 1000)
	ns, nr := started(t, a, b, next, other) // in the same desc
	if ns.idx != s.idx {
		t.Fatalf("desc %d is used, not %d", ns.idx, s.idx)
	}
	for len(bs.received) == 0 {
		step(t, b, bs)
	}
	if _, ok := bs.received[nr]; !ok || bs.received[nr] != nil || !bytes.Equal(other, next) || !b.Receiving() {
		t.Fatalf("%v have ended, want only the message in the same desc", bs.received)
	}
	bs.why = errors.New("because of the test")
	step(t, b, bs)
	if bs.received[r] != bs.why || slices.Contains(buf, 0xff) {
		t.Errorf("a withdrawn message ends with %v; bytes of later: %v", bs.received[r], slices.Contains(buf, 0xff))
	}
	step(t, a, newCompleter())
	idle(t, a, b)

	s, _ = started(t, a, b, msg[:1], buf[:1])
	step(t, b, bs)
	if a.Withdraw(s) {
		t.Error("a message that has been received is withdrawn")
	}
	idle(t, a, b)
}

// TestLateReceiverChangesNothing has a receiver that is stopped before it takes a message, and takes it when the
// sender has withdrawn it and announced another in the same desc.
func TestLateReceiverChangesNothing(t *testing.T) {
	a, b := pair(t, Config{Data: 4096, Copies: true})
	s, late := &Transfer{}, make([]byte, 100000)
	a.Announce(s, make([]byte, len(late)))
	old := s.Token()
	if !a.Withdraw(s) || s.Active() {
		t.Fatal("a message that was not taken cannot be withdrawn")
	}
	next, buf := pattern(100000, 1), make([]byte, 100000)
	addr, _ := a.Announce(s, next)
	if s.Token()&0xff != old&0xff {
		t.Fatalf("desc %d is used, not %d", s.Token()&0xff, old&0xff)
	}
	if b.Accept(&Transfer{}, old, 0, late) || !b.Announced(s.Token()) {
		t.Error("the withdrawn message is taken")
	}
	r, as, bs := &Transfer{}, newCompleter(), newCompleter()
	if !b.Accept(r, s.Token(), addr, buf) || b.Accept(&Transfer{}, old, 0, late) {
		t.Error("the next message is not taken, or the withdrawn one is")
	}
	for len(as.sent) == 0 {
		step(t, a, as) // it copies the first part
		step(t, b, bs)
	}
	if err, ok := bs.received[r]; !ok || err != nil || !bytes.Equal(buf, next) || !bytes.Equal(late, make([]byte, len(late))) {
		t.Errorf("the next message: %v; the right bytes: %v", bs.received, bytes.Equal(buf, next))
	}
	idle(t, a, b)
}

// TestClaimedChunkDelaysEnd has a sender that is stopped after it has claimed a part of a receive's buffer
// and before it has written it. The buffer is given back when it has written, or is known to have ended.
func TestClaimedChunkDelaysEnd(t *testing.T) {
	why := errors.New("because of the test")
	for _, how := range []string{"writes", "is killed", "has ended", "has reset its socket", "is left behind"} {
		kills, sender := 0, processOf(os.Getpid())
		a, b := pair(t, Config{Data: 4096, Copies: true, Peer: sender, Kill: func() { kills++; sender.PID = ended(t) }})
		buf := make([]byte, 1<<20)
		s, r := started(t, a, b, make([]byte, 1<<20), buf)
		if _, ok := s.desc.claimed.next(s.gen, chunkCount(len(buf))); !ok {
			t.Fatal("nothing to claim")
		}
		bs := newCompleter()
		for step(t, b, bs) {
		}
		if n := uint32(s.desc.copied.Load()); n != chunkCount(len(buf))-1 {
			t.Fatalf("%d of %d parts are copied, want all but one", n, chunkCount(len(buf)))
		}
		b.Stop(r, why)
		b.Stop(r, errors.New("once more"))
		if step(t, b, bs) || len(bs.received) != 0 {
			t.Fatal("the buffer was given back while its sender could write to it")
		}
		before := len(kept.bufs)
		switch how {
		case "writes":
			s.desc.copied.next(s.gen, chunkCount(len(buf)))
		case "is killed":
			for range 3 {
				b.Fence()
			}
		case "has ended":
			b.Ended(nil)
		case "has reset its socket":
			b.Ended(unix.ECONNRESET)
		case "is left behind":
			b.Abandon(bs)
		}
		step(t, b, bs)
		if err, ok := bs.received[r]; !ok || err != why || (kills == 1) != (how == "is killed") || kills > 1 || b.Receiving() {
			t.Errorf("a sender that %s: the receive ends with %v after %d kills", how, bs.received, kills)
		}
		if keeps := len(kept.bufs) > before; keeps != (how == "is left behind") {
			t.Errorf("a sender that %s: its buffer is kept: %v", how, keeps)
		}
	}
}

// A receive that was not stopped does not succeed when it is abandoned.
func TestAbandonedReceiveFails(t *testing.T) {
	for _, why := range []error{nil, errors.New("because of the test")} {
		a, b := pair(t, Config{Data: 4096, Copies: true})
		_, r := started(t, a, b, make([]byte, 1<<20), make([]byte, 1<<20))
		bs := newCompleter()
		bs.why = why
		b.Abandon(bs)
		if err, ok := bs.received[r]; !ok || err == nil || why != nil && err != why {
			t.Errorf("the receive ends with %v, want %v", bs.received, why)
		}
	}
}

func TestStoppedReceiveEndsWithoutTheRest(t *testing.T) {
	a, b := pair(t, Config{Data: 4096, Copies: true})
	s, r := started(t, a, b, pattern(1<<20, 1), make([]byte, 1<<20))
	as, bs := newCompleter(), newCompleter()
	step(t, b, bs)
	why := errors.New("because of the test")
	b.Stop(r, why)
	step(t, b, bs)
	if n := uint32(s.desc.copied.Load()); bs.received[r] != why || n != 1 {
		t.Errorf("ends with %v after %d parts, want 1", bs.received, n)
	}
	step(t, a, as)
	if len(as.sent) != 1 {
		t.Error("the sender does not see the end")
	}
	idle(t, a, b)
}

// ended returns the number of a process that has ended, and is not used for another one.
func ended(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestMessageOfDeadSenderIsNotReceived: the sender of a message ends before the receiver, which does not
// know that yet, reads it. The receive fails instead of returning zeros.
func TestMessageOfDeadSenderIsNotReceived(t *testing.T) {
	a, b := pair(t, Config{Data: 4096, Copies: true, Peer: processOf(ended(t))})
	_, r := started(t, a, b, pattern(4000, 1), make([]byte, 4000))
	bs := newCompleter()
	for range 3 {
		step(t, b, bs)
	}
	if len(bs.received) != 0 || !b.dead() {
		t.Fatalf("the receive has ended with %v; the end of the sender is known: %v", bs.received, b.dead())
	}
	why := errors.New("because of the test")
	b.Stop(r, why) // as after a loss
	step(t, b, bs)
	if err := bs.received[r]; err != why {
		t.Errorf("the receive ends with %v", err)
	}
}

func TestHelpForDeadReceiverIsNoError(t *testing.T) {
	a, b := pair(t, Config{Data: 4096, Copies: true, Peer: processOf(ended(t))})
	started(t, a, b, make([]byte, 4000), make([]byte, 4000))
	if step(t, a, newCompleter()); !a.dead() {
		t.Error("the end of the receiver is not noticed")
	}
}

// Address 8 stands for memory that the kernel does not copy.
func TestTransferThatCannotCopyIsRefused(t *testing.T) {
	why := errors.New("because of the test")
	for how, want := range []error{ErrRefused, ErrRefused, why} {
		senderWrites := how == 1
		a, b := pair(t, Config{Data: 4096, Copies: true})
		s, r := &Transfer{Sender: 77}, &Transfer{}
		addr, _ := a.Announce(s, make([]byte, 100000))
		as, bs := newCompleter(), newCompleter()
		if senderWrites {
			b.Accept(r, s.Token(), addr, make([]byte, 100000))
			b.mine[s.idx].dst.Store(8)
			step(t, a, as)
		} else {
			b.Accept(r, s.Token(), 8, make([]byte, 100000))
		}
		for len(bs.received) == 0 {
			if a.TakeRefusal(s) {
				t.Fatal("the transfer is refused before the receiver has ended it")
			}
			if step(t, b, bs); want == why {
				b.Stop(r, why)
			}
		}
		if bs.received[r] != want || r.Sender != 77 || a.TakeRefusal(s) != (want == ErrRefused) || step(t, a, as) != (want == why) {
			t.Errorf("how %d: the receive ends with %v, for %d", how, bs.received, r.Sender)
		}
		idle(t, a, b)
	}
}

func TestReceiverThatTakesTooMuchIsError(t *testing.T) {
	for _, n := range []uint64{4001, 1<<64 - 1} {
		a, b := pair(t, Config{Data: 4096, Copies: true})
		s, _ := started(t, a, b, make([]byte, 4000), make([]byte, 4000))
		b.mine[s.idx].n.Store(n)
		if _, err := a.Step(newCompleter()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("takes %d bytes of a message of 4000", n)) {
			t.Errorf("the receiver takes %d bytes: %v", n, err)
		}
	}
}
