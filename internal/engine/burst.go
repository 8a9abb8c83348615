package engine

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// A burst is many short messages that a program starts to one rank over a socket. The first are written at once, so that
// a program that starts a few messages, and then computes on all processors, is not delayed. The others are queued, and
// flush writes many of them in one system call.
//
// Invariant, under the engine's lock: a message that is kept back is in the peer's queue and not complete. Every goroutine
// that looks at the links writes it. If none does, flusher has a token in its parker, or is about to take the lock, or the
// link has no room, and the ticker looks at it.
const (
	burstGap  = 20 * time.Microsecond // at most, between two messages of a burst: Engine.burstGap
	burstMin  = 4                     // messages of a burst that are written at once
	burstKeep = 64                    // frames that are kept back
	burstSize = 2 << 10               // bytes of the longest message
)

// burst notes a message of the program, and reports whether it is kept back.
func (p *peer) burst(bytes int) bool {
	if _, ok := p.link.(Corker); !ok || bytes > burstSize || p.writeErr != nil || p.state.Link != membership.Up {
		return false
	}
	now := time.Since(epoch)
	if now-p.begun > p.e.burstGap {
		p.inBurst = 0
	}
	p.begun = now
	p.inBurst++
	return p.inBurst > burstMin
}

// keep queues a frame of a burst. It is written by the next goroutine that looks at the links, which is flusher if the
// program does not wait.
func (p *peer) keep(h frame.Header, body []byte, o *op) {
	p.queue(h, body, o)
	if p.kept++; p.kept >= burstKeep {
		p.flush() // once: behind the frames there may be a long message
	}
	if p.first != nil {
		p.e.keeps.Unpark()
	}
}

// flusher writes the frames that were kept back, until endFlusher is called.
func (e *Engine) flusher() {
	for !e.flushed.Load() {
		e.keeps.Park(0)
		for moved := true; moved; {
			e.mu.Lock()
			moved = e.progress()
			e.mu.Unlock()
		}
	}
}

func (e *Engine) endFlusher() {
	e.flushed.Store(true)
	e.keeps.Unpark()
}
