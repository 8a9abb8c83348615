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
	mu  word.Mutex
	e   *Engine
	due duty // of Unlock

	hook func(e *Engine) // atUnlock when the engine was made

	done  []*backend.Request   // completed; their Notify is not called yet
	lists [][]*backend.Request // spare for done
}

// duty is what Unlock has to do, a set of these:
//
//	duty         asked for by  once the lock is free
//	callNotify   notify        the Notify functions of the completed requests are called
//	callAside    LockAside     another goroutine calls them
//	askWaiters   wakeReady     waiters that are ready wake up
//	rouseLeader  wakeLeader    the leader's sleep on the links ends
//	callHook     tests         hook is called, before the lock is free
type duty uint8

const (
	callNotify duty = 1 << iota
	callAside
	askWaiters
	rouseLeader
	callHook
)

// atUnlock, if not nil, is called before every release of the lock of an engine that is made afterwards.
var atUnlock func(e *Engine)

func (l *lock) Lock()         { l.mu.Lock() }
func (l *lock) TryLock() bool { return l.mu.TryLock() }

// LockAside is Lock for a goroutine that must not wait for Notify functions. Another goroutine calls those of the
// requests that it completes.
func (l *lock) LockAside() {
	l.mu.Lock()
	l.due |= callAside
}

// notify makes Unlock call the Notify function of a request that has completed. The lock is held.
func (l *lock) notify(r *backend.Request) {
	l.done = append(l.done, r)
	l.due |= callNotify
}

// Unlock releases the lock, and makes known what has completed under it.
func (l *lock) Unlock() {
	if l.due != 0 {
		l.settle()
		return
	}
	l.mu.Unlock()
}

// settle is Unlock when there is more to do. Frames that the Notify functions have kept back are written in the end,
// because the caller may not come back for a long time.
func (l *lock) settle() {
	if l.due&callHook != 0 {
		l.hook(l.e)
	}
	var list []*backend.Request
	due := l.due
	if due&callNotify != 0 {
		list, l.done = l.done, nil
		if n := len(l.lists); n > 0 {
			l.done, l.lists = l.lists[n-1], l.lists[:n-1]
		}
	}
	uncorks := -1
	if len(l.e.corks) > 0 {
		uncorks = l.e.uncorks
	}
	l.due = due & callHook
	l.mu.Unlock()
	if due&askWaiters != 0 {
		l.e.crew.Ask()
	}
	if due&rouseLeader != 0 {
		l.e.crew.Rouse()
	}
	switch {
	case len(list) == 0:
	case due&callAside != 0:
		go l.call(list, uncorks)
	default:
		l.call(list, uncorks)
	}
}

// call calls Notify functions, and writes the frames that they keep back. It leaves that to the goroutine that had kept
// frames back when the requests completed, if these are still not written: it will write all. uncorks is how often kept
// frames had been written when the requests completed, -1 if there were none.
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
