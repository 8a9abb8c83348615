//go:build interleave

package comm

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// A persistent operation is started, and again as soon as one of two goroutines that wait for it has returned.
// The other returns the result of the start that it has waited for, or of a later one.
func TestInterleavePersistentStartsBesideWait(t *testing.T) {
	for _, last := range []string{"Wait", "Test", "Close"} {
		t.Run(last, func(t *testing.T) {
			explore(t, interleave.Long(2), func(e *explored) {
				o := e.work()
				o.numbered = true
				p := e.c.persistent(&Persistent{op: o}, "test", nil, Undefined, Undefined)
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				e.x.Go("waiter", func() {
					if _, err := p.Wait(); err == nil {
						e.x.Errorf("Wait beside the next start has no result")
					}
				})
				e.x.Go("starter", func() {
					if _, err := p.Wait(); !errors.Is(err, nth(1)) {
						e.x.Errorf("the first Wait returns %v", err)
					}
					if last == "Close" {
						if err := p.Close(); err != nil {
							e.x.Errorf("%v", err)
						}
						return
					}
					if err := p.Start(); err != nil {
						e.x.Errorf("%v", err)
						return
					}
					if last == "Test" {
						_, _, _ = p.Test()
					}
					if _, err := p.Wait(); !errors.Is(err, nth(2)) {
						e.x.Errorf("the second Wait returns %v", err)
					}
				})
				e.x.Go("completer", func() {
					for start := uint32(1); start <= 2; start++ {
						for o.starts.Load() < start {
							if last == "Close" && start == 2 {
								return
							}
							word.Yield()
						}
						o.complete()
					}
				})
			})
		})
	}
}

// Each start of a persistent send completes at once, and another goroutine waits for one of the starts. That goroutine
// gets the whole result of a start, also if it waits when the last start begins, for which no other one waits.
func TestInterleavePersistentCompletesAtOnce(t *testing.T) {
	explore(t, 2, func(e *explored) {
		p := e.c.persistent(&Persistent{}, "test", nil, 0, 0)
		e.x.Name(&p.last.Load().word, "request")
		e.x.Go("starter", func() {
			for start := 1; start <= 2; start++ {
				if err := p.Start(); err != nil {
					e.x.Errorf("%v", err)
				}
				if start == 2 {
					break
				}
				if st, err := p.Wait(); err != nil || st.Bytes != start || st.Source != start {
					e.x.Errorf("start %d returns %v, %v", start, st, err)
				}
			}
		})
		e.x.Go("waiter", func() {
			if st, err := p.Wait(); err != nil || st.Source != st.Bytes {
				e.x.Errorf("%v, %v", st, err)
			}
		})
	})
}

// Two goroutines start a persistent operation, and one waits for it until its deadline, at which it is under way.
// From then on it is not started again.
func TestInterleavePersistentGivenUpBesideStart(t *testing.T) {
	explore(t, 2, func(e *explored) {
		c, o := e.limited(), e.work()
		o.slow = true
		p := c.persistent(&Persistent{op: o}, "test", nil, Undefined, Undefined)
		e.x.Go("starter", func() { _ = p.Start() })
		e.x.Go("waiter", func() {
			_ = p.Start()
			_, err := p.Wait()
			if _, again := p.Wait(); err != nil && again == nil {
				e.x.Errorf("the second Wait returns nil, the first %v", err)
			}
			if err := p.Start(); !errors.Is(err, backend.ErrRequest) {
				e.x.Errorf("Start of what was given up: %v", err)
			}
		})
		e.x.Go("clock", e.clock)
	})
}
