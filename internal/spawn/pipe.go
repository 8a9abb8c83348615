//go:build unix

package spawn

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// pipe is the launcher's end of a rank's output.
type pipe struct {
	file   *os.File
	to     io.Writer   // gets the data too, until a write to it fails; may be nil
	failed func(error) // called for that failure

	mu      sync.Mutex
	hurried bool
	waited  time.Duration // in Read, since hurry
	size    int           // of the data read since then
}

// hurry is called once, when the rank has ended. What it wrote is in the pipe, but a process that has left its group may still
// write. Read fails when it has waited for data for drainLimit in all, or has read more than a pipe holds.
func (p *pipe) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hurried = true
	p.file.SetReadDeadline(time.Now()) // wakes a Read that already waits
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) { return p.read(b, false) }

func (p *pipe) read(b []byte, wait bool) (int, error) {
	for {
		p.mu.Lock()
		hurried, began := p.hurried, time.Now()
		switch {
		case hurried && p.size > pipeMost:
			p.file.SetReadDeadline(began)
		case hurried:
			p.file.SetReadDeadline(began.Add(drainLimit - p.waited))
		case wait:
			p.file.SetReadDeadline(began.Add(pauseLimit))
		default:
			p.file.SetReadDeadline(time.Time{})
		}
		p.mu.Unlock()
		n, err := p.file.Read(b)
		if n > 0 && p.to != nil {
			if _, e := p.to.Write(b[:n]); e != nil {
				p.to = nil
				p.failed(e)
			}
		}
		switch {
		case hurried:
			p.waited += time.Since(began) // without the lock: one goroutine reads
			p.size += n
			return n, err
		case n > 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case wait:
			return 0, errPause
		}
	}
}
