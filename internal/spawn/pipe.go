//go:build unix

package spawn

import (
	"errors"
	"os"
	"sync"
	"time"
)

// pipe is the launcher's end of a rank's output.
type pipe struct {
	file *os.File

	mu      sync.Mutex
	hurried bool
}

// hurry makes Read fail once no data arrive for drainLimit. It is called once.
func (p *pipe) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hurried = true
	p.file.SetReadDeadline(time.Now()) // wakes a Read that already waits
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) { return p.read(b, false) }

// read implements source.
func (p *pipe) read(b []byte, wait bool) (int, error) {
	for {
		p.mu.Lock()
		hurried := p.hurried
		switch {
		case hurried:
			p.file.SetReadDeadline(time.Now().Add(drainLimit))
		case wait:
			p.file.SetReadDeadline(time.Now().Add(pauseLimit))
		default:
			p.file.SetReadDeadline(time.Time{})
		}
		p.mu.Unlock()
		n, err := p.file.Read(b)
		switch {
		case hurried || n > 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case wait:
			return 0, errPause
		}
	}
}
