//go:build !interleave

package word

import "time"

// A Parker lets one goroutine sleep until another one of this process wakes it.
type Parker struct {
	token chan struct{}
	timer *time.Timer // of the last Park with a timeout
}

// NewParker returns a parker without a token.
func NewParker() *Parker { return &Parker{token: make(chan struct{}, 1)} }

// Park sleeps until there is a token, and takes it. It returns false if the timeout (0: none) has ended the sleep.
func (p *Parker) Park(timeout time.Duration) bool {
	if timeout <= 0 {
		<-p.token
		return true
	}
	if p.timer == nil {
		p.timer = time.NewTimer(timeout)
	} else {
		p.timer.Reset(timeout)
	}
	select {
	case <-p.token:
		p.timer.Stop()
		return true
	case <-p.timer.C:
		return false
	}
}

// Unpark leaves a token, unless there is one.
func (p *Parker) Unpark() {
	select {
	case p.token <- struct{}{}:
	default:
	}
}

// Drop takes the token, if there is one.
func (p *Parker) Drop() {
	select {
	case <-p.token:
	default:
	}
}
