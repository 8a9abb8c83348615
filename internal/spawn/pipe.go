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
func (p *pipe) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		hurried := p.hurried
		if hurried {
			p.file.SetReadDeadline(time.Now().Add(drainLimit))
		}
		p.mu.Unlock()
		n, err := p.file.Read(b)
		if hurried || n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}
