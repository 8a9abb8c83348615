//go:build interleave && linux

package memlink

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/test/need"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/word"
)

// ringData is the length of the data rings: two pieces, of 32 bytes, fill one.
const ringData = 128

// ends returns both ends of a link whose memory is as new. No end sleeps.
func ends(seg *shmem.Segment) (a, b *end) {
	a, b = pairIn(seg, Config{Data: ringData, Copies: true})
	a.cfg.Asleep, b.cfg.Asleep = nil, nil
	return a, b
}

// explore explores what two ends of a link do.
func explore(t *testing.T, cfg interleave.Config, program func(x *interleave.Run, a, b *end)) {
	seg := memory(t, ringData)
	interleave.Explore(t, cfg, func(x *interleave.Run) {
		a, b := ends(seg)
		program(x, a, b)
	})
}

// The words of a ring: the sender writes the seq of a cell, behind the cell and its piece; the receiver writes head.
// Frames arrive whole, once and in order, also if the ring is full in between.
func TestInterleaveRing(t *testing.T) {
	for _, c := range []struct {
		name   string
		bodies []int
		fast   bool // by Send and Receive
	}{
		{"cells", []int{0, 3, 44, 1, 2, 5}, false},
		{"pieces", []int{50, 45, 60}, false},
		{"fast path", []int{3, 31, 2, 32, 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			explore(t, interleave.Config{}, func(x *interleave.Run, a, b *end) {
				x.Name(&a.out.r.head, "head")
				x.Go("sender", func() {
					for i, n := range c.bodies {
						body := pattern(n, i)
						h := frame.Header{Kind: frame.Eager, Tag: int32(i), Length: uint64(n)}
						if c.fast {
							for !a.Send(0, h.Tag, 0, body, true) {
								word.Yield()
							}
							continue
						}
						for at := 0; at < frame.HeaderSize+n; {
							k, err := a.Write(&h, body, at)
							if err != nil {
								x.Errorf("write: %v", err)
							}
							if at == k {
								word.Yield()
							}
							at = k
						}
					}
				})
				x.Go("receiver", func() {
					for i, n := range c.bodies {
						var got []byte
						if c.fast {
							for !b.Arrived() {
								word.Yield()
							}
							_, tag, _, size, ok := b.Peek(&b.in)
							if !ok || int(tag) != i || size != n {
								x.Errorf("message %d: tag %d, size %d", i, tag, size)
							}
							got = make([]byte, n)
							b.Receive(got, size)
						} else {
							for len(b.bodies) <= i || b.in.Left > 0 {
								moved, err := b.read()
								if err != nil {
									x.Errorf("read: %v", err)
								}
								if !moved {
									word.Yield()
								}
							}
							got = b.bodies[i]
						}
						if !bytes.Equal(got, pattern(n, i)) {
							x.Errorf("message %d is wrong", i)
						}
					}
				})
			})
		})
	}
}

// Both ranks sleep when they have nothing to do, each on its bell: the receiver while the ring is empty, the sender
// while it is full. The fast path of a send looks whether the receiver sleeps after an atomic operation, as an unlock is.
func TestInterleaveSleepingRanks(t *testing.T) {
	const messages = cells + 1
	for _, fast := range []bool{false, true} {
		t.Run(fmt.Sprintf("fast %v", fast), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: interleave.Long(3)}, func(x *interleave.Run, a, b *end) {
				var bells [2]wait.Bell
				var lock word.Mutex
				for i, l := range []*end{a, b} {
					l.cfg.Asleep, l.cfg.Bell = &bells[1-i], bells[1-i].Ring
				}
				until := func(bell *wait.Bell, done func() bool) {
					for !done() {
						seen := bell.Arm()
						if done() {
							bell.Disarm()
							return
						}
						bell.Sleep(seen, 0)
						bell.Disarm()
					}
				}
				x.Go("sender", func() {
					for i := range messages {
						until(&bells[0], func() bool {
							if !fast {
								n, err := a.Write(&frame.Header{Kind: frame.Eager, Tag: int32(i), Length: 1}, []byte{byte(i)}, 0)
								return err != nil || n > 0
							}
							lock.Lock()
							sent := a.Send(0, int32(i), 0, []byte{byte(i)}, true)
							lock.Unlock()
							if sent && a.Asleep() {
								a.Ring()
							}
							return sent
						})
					}
				})
				x.Go("receiver", func() {
					for i := range messages {
						until(&bells[1], func() bool {
							if len(b.frames) <= i {
								b.read()
							}
							return len(b.frames) > i
						})
					}
				})
			})
		})
	}
}

// A sender that dies anywhere leaves a beginning of what it has sent, and a receiver that then reads to the end.
func TestInterleaveRingOfDeadSender(t *testing.T) {
	lengths := []int{20, 46} // one cell, and two with pieces
	explore(t, interleave.Config{Deaths: 1}, func(x *interleave.Run, a, b *end) {
		x.GoMortal("sender", func() {
			for i, n := range lengths {
				a.Write(&frame.Header{Kind: frame.Eager, Tag: int32(i), Length: uint64(n)}, pattern(n, i), 0)
			}
			a.Finish(true)
		})
		x.Go("receiver", func() {
			for {
				if x.Dead("sender") {
					b.Ended(nil)
				}
				moved, err := b.read()
				if n := len(b.frames); n > 0 && b.frames[n-1].Kind == frame.Goodbye {
					if n != 3 {
						x.Errorf("the goodbye has overtaken %d frames", 3-n)
					}
					break
				}
				if err != nil {
					break
				}
				if !moved {
					word.Yield()
				}
			}
			for i, h := range b.frames { // those that are whole
				if h.Kind == frame.Eager && !bytes.Equal(b.bodies[i], pattern(lengths[i], i)) {
					x.Errorf("message %d is wrong", i)
				}
			}
		})
	})
}

// message is what transfers carry: two chunks.
const message = 2 * chunkMin

// transfer is what the threads of an exploration know of one transfer.
type transfer struct {
	x        *interleave.Run
	src, dst []byte
	token    word.Uint64 // and 1
	addr     uint64
	quit     word.Bool // the sender has ended

	stale     uint64 // a token that was revoked, and 1: it is tried beside the message
	withdrawn bool   // Withdraw has returned true
	refused   bool   // TakeRefusal has
}

// send announces a message and makes progress until it has ended. It withdraws it if withdraw is set.
func (tr *transfer) send(l *end, withdraw bool) {
	c := newCompleter()
	var t Transfer
	addr, ok := l.Announce(&t, tr.src)
	if !ok {
		tr.x.Errorf("nothing can be announced")
	}
	tr.addr = addr
	tr.token.Store(t.Token() + 1)
	for len(c.sent) == 0 {
		if withdraw {
			tr.withdrawn = l.Withdraw(&t)
			break
		}
		state := t.desc.state.Load()
		if tr.refused = l.TakeRefusal(&t); tr.refused {
			break
		}
		if moved, err := l.Step(c); err != nil {
			tr.x.Errorf("sender: %v", err)
		} else if !moved && t.desc.state.Load() == state { // as TakeRefusal and Step have seen it
			word.Yield()
		}
	}
	word.Writes(tr.src) // the buffer is the program's again
	clear(tr.src)
	tr.quit.Store(true)
}

var (
	errStopped   = errors.New("stopped")
	errWithdrawn = errors.New("withdrawn")
)

// receive takes the message, and ends the receive by Stop if stop is set. It returns how it has ended.
func (tr *transfer) receive(l *end, stop bool, dead func() bool) (taken bool, err error) {
	c := newCompleter()
	for tr.token.Load() == 0 {
		if dead != nil && dead() {
			return false, nil
		}
		word.Yield()
	}
	var t Transfer
	if !l.Accept(&t, tr.token.Load()-1, tr.addr, tr.dst) {
		return false, nil
	}
	if tr.stale > 0 && l.Accept(new(Transfer), tr.stale-1, tr.addr, make([]byte, message)) {
		tr.x.Errorf("a message that was revoked is there")
	}
	for {
		if stop {
			l.Stop(&t, errStopped)
		}
		if dead != nil && dead() {
			l.Stop(&t, errStopped)
		}
		if tr.quit.Load() {
			c.why = errWithdrawn
		}
		moved, stepErr := l.Step(c)
		if stepErr != nil {
			tr.x.Errorf("receiver: %v", stepErr)
		}
		if end, ok := c.received[&t]; ok {
			word.Writes(tr.dst) // the buffer is the program's again
			return true, end
		}
		if !moved {
			word.Yield()
		}
	}
}

// The words of a transfer: state, claimed and copied of its desc, dst and n of the receiver's. A receive that
// succeeds has the whole message; whatever happens, no rank touches a buffer that the other's program has back. If the
// kernel does not copy one of the buffers, both ranks learn that the transfer is refused.
func TestInterleaveTransfer(t *testing.T) {
	for _, c := range []struct {
		name           string
		withdraw, stop bool
		secret         int // bits: of the sender, of the receiver
	}{
		{"to the end", false, false, 0},
		{"withdrawn", true, false, 0},
		{"stopped", false, true, 0},
		{"withdrawn and stopped", true, true, 0},
		{"secret message", false, false, 1},
		{"secret buffer", false, false, 2},
		{"both secret", false, false, 3},
		{"secret message, withdrawn", true, false, 1},
		{"secret buffer, stopped", false, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := make([]byte, message), make([]byte, message)
			for i, b := range []*[]byte{&src, &dst} {
				if c.secret>>i&1 != 0 {
					var err error
					if *b, err = need.SecretMemory(message); errors.Is(err, errors.ErrUnsupported) {
						need.Missing(t, "needs memfd_secret")
					} else if err != nil {
						t.Fatal(err)
					}
					defer unix.Munmap(*b)
				}
			}
			explore(t, interleave.Config{}, func(x *interleave.Run, a, b *end) {
				want := pattern(message, 1)
				tr := &transfer{x: x, src: src, dst: dst}
				copy(src, want)
				clear(dst)
				x.Name(&a.mine[0].state, "state")
				x.Name(&a.mine[0].claimed, "claimed")
				x.Name(&a.mine[0].copied, "copied")
				x.Go("sender", func() { tr.send(a, c.withdraw) })
				var taken bool
				var err error
				x.Check(func() error {
					if ended := taken && !errors.Is(err, errWithdrawn) && !errors.Is(err, ErrRefused); c.withdraw && !c.stop && tr.withdrawn == ended {
						return fmt.Errorf("Withdraw returns %v, and the receive has ended: %v, %v", tr.withdrawn, taken, err)
					}
					if refused := errors.Is(err, ErrRefused); !c.withdraw && refused != tr.refused || c.secret == 3 && !refused {
						return fmt.Errorf("the sender's transfer is refused: %v; the receive ends with %v", tr.refused, err)
					}
					return nil
				})
				x.Go("receiver", func() {
					taken, err = tr.receive(b, c.stop, nil)
					switch {
					case taken && err == nil && !bytes.Equal(tr.dst, want):
						x.Errorf("the receive succeeds with %v, want %v", tr.dst, want)
					case !taken && !c.withdraw:
						x.Errorf("the message was not accepted")
					case errors.Is(err, errWithdrawn) && !c.withdraw, errors.Is(err, errStopped) && !c.stop:
						x.Errorf("the receive ends with %v", err)
					}
				})
			})
		})
	}
}

// A desc that is used again is never taken for the message before.
func TestInterleaveTransferAgain(t *testing.T) {
	explore(t, interleave.Config{}, func(x *interleave.Run, a, b *end) {
		want := pattern(message, 2)
		tr := &transfer{x: x, src: bytes.Clone(want), dst: make([]byte, message)}
		var old word.Uint64
		x.Go("sender", func() {
			var first Transfer
			a.Announce(&first, make([]byte, message))
			old.Store(first.Token() + 1)
			if a.Revoke(&first) {
				tr.send(a, false)
			} else {
				a.Withdraw(&first)
				tr.quit.Store(true)
			}
		})
		x.Go("receiver", func() {
			for old.Load() == 0 {
				word.Yield()
			}
			stale := make([]byte, message)
			var s Transfer
			if b.Accept(&s, old.Load()-1, shmem.Addr(stale), stale) { // before it was revoked
				c := newCompleter()
				for len(c.received) == 0 {
					if tr.quit.Load() {
						c.why = errWithdrawn
					}
					if moved, _ := b.Step(c); !moved {
						word.Yield()
					}
				}
				return
			}
			tr.stale = old.Load()
			if taken, err := tr.receive(b, false, nil); !taken || err != nil || !bytes.Equal(tr.dst, want) {
				x.Errorf("taken %v, %v: %v, want %v", taken, err, tr.dst, want)
			}
		})
	})
}

// One rank revokes while the other accepts: one of them succeeds.
func TestInterleaveRevokeBesideAccept(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 5}, func(x *interleave.Run, a, b *end) {
		var token word.Uint64
		var revoked, accepted bool
		var addr uint64
		x.Go("sender", func() {
			var t Transfer
			addr, _ = a.Announce(&t, make([]byte, message))
			token.Store(t.Token() + 1)
			revoked = a.Revoke(&t)
		})
		x.Go("receiver", func() {
			for token.Load() == 0 {
				word.Yield()
			}
			accepted = b.Accept(new(Transfer), token.Load()-1, addr, make([]byte, message))
		})
		x.Check(func() error {
			if revoked == accepted {
				return fmt.Errorf("revoked %v, accepted %v", revoked, accepted)
			}
			return nil
		})
	})
}

// A rank that dies in the middle of a transfer does not keep the other from ending it, however this learns of it.
func TestInterleaveTransferOfDeadRank(t *testing.T) {
	gone := ended(t)
	for how, dies := range map[string]func(b *end) bool{
		"process":        func(b *end) bool { b.Ended(nil); return true },
		"socket":         func(b *end) bool { b.Ended(unix.ECONNRESET); return true },
		"copy and fence": func(b *end) bool { b.cfg.Peer = processOf(gone); b.Fence(); return true },
	} {
		t.Run(how, func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: interleave.Long(3), Deaths: 1}, func(x *interleave.Run, a, b *end) {
				b.cfg.Kill = func() { x.Errorf("a process is killed that has ended") }
				want := pattern(message, 3)
				tr := &transfer{x: x, src: bytes.Clone(want), dst: make([]byte, message)}
				x.GoMortal("sender", func() { tr.send(a, false) })
				x.Go("receiver", func() {
					taken, err := tr.receive(b, false, func() bool { return x.Dead("sender") && dies(b) })
					if taken && err == nil && !bytes.Equal(tr.dst, want) {
						x.Errorf("the receive succeeds with %v, want %v", tr.dst, want)
					}
				})
			})
		})
	}
}

// A sender that is stopped anywhere is killed before the receiver gives its buffer back.
func TestInterleaveFence(t *testing.T) {
	gone := ended(t)
	explore(t, interleave.Config{Deaths: 1}, func(x *interleave.Run, a, b *end) {
		tr := &transfer{x: x, src: pattern(message, 4), dst: make([]byte, message)}
		b.cfg.Kill = func() { x.Kill("sender"); b.cfg.Peer = processOf(gone) }
		x.GoMortal("sender", func() { tr.send(a, false) }) // it dies for the others to see only when it is killed
		x.Go("receiver", func() {
			c := newCompleter()
			for tr.token.Load() == 0 {
				if x.Dead("sender") {
					return
				}
				word.Yield()
			}
			var r Transfer
			if !b.Accept(&r, tr.token.Load()-1, tr.addr, tr.dst) {
				x.Errorf("the message was not accepted")
			}
			b.Stop(&r, errStopped)
			for range 2 {
				b.Step(c)
			}
			b.Fence()
			b.Fence() // as in the next tick
			for len(c.received) == 0 {
				if moved, err := b.Step(c); err != nil {
					x.Errorf("receiver: %v", err)
				} else if !moved {
					word.Yield()
				}
			}
			word.Writes(tr.dst)
		})
	})
}
