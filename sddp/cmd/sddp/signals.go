package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signals handles SIGINT and SIGTERM. The first one ends the program's context. In a training that
// writes checkpoints it asks the ranks to stop instead, so that rank 0 can write one. Later signals
// change nothing: a launcher may send its own besides those of the terminal.
type signals struct {
	in     chan os.Signal
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	got  os.Signal     // the first
	stop chan struct{} // closed to stop the training; nil outside of one
}

// watchSignals returns a context that ends with a signal.
func watchSignals() (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &signals{in: make(chan os.Signal, 1), cancel: cancel}
	signal.Notify(s.in, os.Interrupt, syscall.SIGTERM)
	go func() {
		for sig := range s.in {
			s.take(sig)
		}
	}()
	return ctx, s
}

// errSignal is the cause of the end of the context.
var errSignal = errors.New("interrupted by a signal")

// take handles a signal.
func (s *signals) take(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got != nil {
		return
	}
	s.got = sig
	if s.stop != nil {
		close(s.stop)
	} else {
		s.cancel(errSignal)
	}
}

// statusOf returns the exit status after a signal, as shells do.
func statusOf(sig os.Signal) int { return 128 + int(sig.(syscall.Signal)) }

// ended describes the end by a signal.
func ended(sig os.Signal) string {
	if sig == syscall.SIGTERM {
		return "stopped by SIGTERM"
	}
	return "interrupted"
}

// stopTraining returns a channel. Until trainingEnded, a signal closes it instead of ending the context. A training that is
// repeated after a loss gets the same one.
func (s *signals) stopTraining() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop == nil {
		s.stop = make(chan struct{})
	}
	return s.stop
}

// trainingEnded ends the context if there was a signal.
func (s *signals) trainingEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop = nil; s.got != nil {
		s.cancel(errSignal)
	}
}

// first returns the first signal, or nil.
func (s *signals) first() os.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// end stops watching.
func (s *signals) end() {
	signal.Stop(s.in)
	close(s.in)
	s.cancel(nil)
}
