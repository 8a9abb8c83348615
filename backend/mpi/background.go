//go:build cgo && linux

package mpi

import "time"

// States of engine.poller, the goroutine that polls while nobody waits. The goroutine that makes a transition writes the
// word.
//
//	from         event                                                           to
//	pollerNone   the thread level lets it call the library (join)                pollerIdle
//	pollerIdle   something needs poll (inBackground, which starts it)            pollerRuns
//	pollerRuns   for idleRounds nothing did, or the engine stops: it ends        pollerIdle
//
// Invariant: at most one goroutine polls in the background. It looks once more after it has become idle, so while something
// needs poll it runs, or is started.
const (
	pollerNone uint32 = iota
	pollerIdle
	pollerRuns
)

const (
	pollEvery  = time.Millisecond
	idleRounds = 50 // rounds with nothing to do before the goroutine ends
)

// inBackground makes sure that what only poll advances (needsPoll) goes on even if nobody waits for it: the program may
// be in a blocking call, or computing, while another rank waits for its messages.
func (e *engine) inBackground() {
	if e.poller.Load() == pollerIdle && e.poller.CompareAndSwap(pollerIdle, pollerRuns) {
		go e.pollInBackground()
	}
}

func (e *engine) pollInBackground() {
	for idle := 0; idle < idleRounds; idle++ {
		time.Sleep(pollEvery)
		for e.needsPoll() && e.poll(1) {
		}
		if e.needsPoll() {
			idle = 0
		}
		if e.closing.Load() {
			break
		}
	}
	e.poller.Store(pollerIdle)
	if e.needsPoll() && !e.closing.Load() {
		e.inBackground()
	}
}
