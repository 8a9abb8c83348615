//go:build interleave && linux

package memlink

import (
	"io"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// The mailboxes of two ranks: one sends a notice and its first message, and leaves, gives the link up, or dies anywhere.
// The other sends its first message at the same time, or none. No rank touches rings before they are allocated. All that
// was sent arrives in order, and the goodbye, or the end, after it.
func TestInterleaveFirstFrames(t *testing.T) {
	seg := memory(t, ringData)
	order := []frame.Kind{frame.Closed, frame.Eager, frame.Goodbye}
	for i, name := range []string{"one leaves", "both begin, and one leaves", "one dies", "both begin, and one dies", "one gives up", "both begin, and one gives up"} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: interleave.Long(3), Deaths: i / 2 % 2}, func(x *interleave.Run) {
				both, sent := i%2 == 1, false
				body := pattern(46, i) // two pieces
				var allocated word.Bool
				a, b := pairIn(seg, Config{Data: ringData, Make: func() error { allocated.Store(true); return nil }})
				a.cfg.Asleep, b.cfg.Asleep = nil, nil
				x.Name(&a.cfg.Says.state, "mailbox of a")
				x.Name(&b.cfg.Says.state, "mailbox of b")
				send := func(l *end) {
					if l == a {
						l.Write(&frame.Header{Kind: frame.Closed}, nil, 0)
					}
					l.Make()
					if n, err := l.Write(&frame.Header{Kind: frame.Eager, Length: 46}, body, 0); n != frame.HeaderSize+46 || err != nil {
						x.Errorf("%d bytes written, %v", n, err)
					}
				}
				got := func(l *end, kind frame.Kind) bool {
					return slices.ContainsFunc(l.frames, func(h frame.Header) bool { return h.Kind == kind })
				}
				readTo := func(l *end, kind frame.Kind) {
					for !got(l, kind) {
						if l == b && x.Dead("a") {
							b.Ended(nil)
						}
						moved, err := l.read()
						if (l.made || l.heard) && !allocated.Load() {
							x.Errorf("rings are used that are not allocated")
						}
						if err == io.EOF || i >= 4 && l == b && err == errGone {
							break
						} else if err != nil {
							x.Errorf("read: %v", err)
						} else if !moved {
							word.Yield()
						}
					}
				}
				x.GoMortal("a", func() {
					send(a)
					sent = true
					a.Finish(i < 4)
					if both {
						readTo(a, frame.Eager)
					}
				})
				x.Go("b", func() {
					if both {
						send(b)
					}
					readTo(b, frame.Goodbye)
					if !slices.IsSortedFunc(b.frames, func(x, y frame.Header) int { return slices.Index(order, x.Kind) - slices.Index(order, y.Kind) }) ||
						sent && (!got(b, frame.Closed) || !got(b, frame.Eager)) {
						x.Errorf("%v has arrived", b.frames)
					}
				})
			})
		})
	}
}
