package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signals are SIGINT and SIGTERM. They end the program's context; but a training that writes checkpoints is
// asked to stop instead, so that the ranks can tell each other and the first of them writes one. More of them
// change nothing: a launcher may send them beside those of the terminal.
type signals struct {
	in     chan os.Signal
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	got  os.Signal     // the first
	stop chan struct{} // of a training that goes on
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

// take does what a signal asks for.
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

// statusOf returns the status to end with after a signal.
func statusOf(sig os.Signal) int { return statusSignal + int(sig.(syscall.Signal)) }

// ended says what a signal did.
func ended(sig os.Signal) string {
	if sig == syscall.SIGTERM {
		return "stopped by SIGTERM"
	}
	return "interrupted"
}

// stopTraining returns what a signal closes, from now on until trainingEnded, instead of ending the context.
func (s *signals) stopTraining() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = make(chan struct{})
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
