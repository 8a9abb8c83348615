package engine

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// lock is the engine's lock. It guards everything that moves messages, and is held for short times only: never
// while waiting, and never while a Notify function runs.
//
// A goroutine that holds it may complete requests. Unlock wakes the goroutines that wait for these requests, and calls
// their Notify functions. It is the only way to release the lock, so no request is forgotten.
type lock struct {
	mu   word.Mutex
	e    *Engine
	owes bool // Unlock has something to do

	done  []*backend.Request   // completed; their Notify is not called yet
	lists [][]*backend.Request // spare for done
	aside bool                 // another goroutine calls the Notify functions

	asks, rouses bool // Unlock calls crew.Ask, because waiters may have become ready, or crew.Rouse
}

// atUnlock, if not nil, is called before every release of the lock of an engine that is made afterwards.
var atUnlock func(e *Engine)

func (l *lock) Lock()         { l.mu.Lock() }
func (l *lock) TryLock() bool { return l.mu.TryLock() }

// LockAside is Lock for a goroutine that must not wait for Notify functions. Another goroutine calls those of the
// requests that it completes.
func (l *lock) LockAside() {
	l.mu.Lock()
	l.owes, l.aside = true, true
}

// notify makes Unlock call the Notify function of a request that has completed. The lock is held.
func (l *lock) notify(r *backend.Request) {
	l.done = append(l.done, r)
	l.owes = true
}

// Unlock releases the lock, and makes known what has completed under it.
func (l *lock) Unlock() {
	if l.owes {
		l.settle()
		return
	}
	l.mu.Unlock()
}

// settle is Unlock when there is more to do. While the lock was held, some of these were asked for:
//
//	asked for by            done once the lock is free
//	notify                  the Notify functions of the completed requests are called
//	LockAside, besides      another goroutine calls them
//	wakeReady               waiters that are ready wake up
//	wakeLeader              the leader's sleep on the links ends
//
// Frames that the Notify functions have kept back are written then, because the caller may not come back for a long
// time.
func (l *lock) settle() {
	if atUnlock != nil {
		atUnlock(l.e)
	}
	var list []*backend.Request
	if len(l.done) > 0 {
		list, l.done = l.done, nil
		if n := len(l.lists); n > 0 {
			l.done, l.lists = l.lists[n-1], l.lists[:n-1]
		}
	}
	aside, uncorks := l.aside, -1
	if len(l.e.corks) > 0 {
		uncorks = l.e.uncorks
	}
	asks, rouses := l.asks, l.rouses
	l.aside, l.asks, l.rouses, l.owes = false, false, false, atUnlock != nil
	l.mu.Unlock()
	if asks {
		l.e.crew.Ask()
	}
	if rouses {
		l.e.crew.Rouse()
	}
	switch {
	case len(list) == 0:
	case aside:
		go l.call(list, uncorks)
	default:
		l.call(list, uncorks)
	}
}

// call calls Notify functions. uncorks is how often kept frames had been written when the requests completed, -1 if there
// were none. A goroutine that had kept some back then, and has not written them yet, will write those of Notify too.
func (l *lock) call(list []*backend.Request, uncorks int) {
	for i, r := range list {
		list[i] = nil
		r.Notify(r)
	}
	l.Lock()
	if len(l.lists) < 8 { // a Notify may have released the lock too
		l.lists = append(l.lists, list[:0])
	}
	if len(l.e.corks) > 0 && l.e.uncorks != uncorks {
		l.e.uncork()
	}
	l.e.wakeReady() // a waiter for what Notify has made ready may sleep again since the completion
	l.Unlock()
}
