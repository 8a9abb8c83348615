//go:build unix

package remote

import (
	"io"
	"os"
	"sync"
)

// A printer writes the hosts' output and the launcher's messages in the order in which they are added. add does
// not wait: the hosts' windows limit the amount.
type printer struct {
	failed func(error) // called once, for the first write that fails

	mu      sync.Mutex
	changed sync.Cond
	queue   []piece
	closing bool
	done    chan struct{}
}

type piece struct {
	w    io.Writer
	b    []byte
	used func() // called when it has been written, or never will be
}

func newPrinter(failed func(error)) *printer {
	p := &printer{failed: failed, done: make(chan struct{})}
	p.changed.L = &p.mu
	go p.run()
	return p
}

func (p *printer) add(w io.Writer, b []byte, used func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, piece{w, b, used})
	p.changed.Signal()
}

// close makes run close done once everything has been written.
func (p *printer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	p.changed.Signal()
}

func (p *printer) run() {
	defer close(p.done)
	failed := map[io.Writer]bool{} // nothing more is written to these
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.closing {
			p.changed.Wait()
		}
		queue := p.queue
		p.queue = nil
		p.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, x := range queue {
			if !failed[x.w] || x.used == nil { // the launcher's own messages are written even after a failure
				if _, err := x.w.Write(x.b); err != nil {
					if len(failed) == 0 {
						p.failed(err)
					}
					failed[x.w] = true
				}
			}
			if x.used != nil {
				x.used()
			}
		}
	}
}

// inputWriter sends input to the host of rank 0.
type inputWriter struct {
	link   *link
	window *credit
}

func (w *inputWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		b := rest[:min(len(rest), maxChunk)]
		rest = rest[len(b):]
		if !w.window.take(charge(b)) {
			return 0, os.ErrClosed
		}
		w.link.send(kindInput, b)
	}
	return len(p), nil
}

// Close ends rank 0's input.
func (w *inputWriter) Close() error {
	w.link.send(kindInput)
	return nil
}

// output is standard output or error of the ranks for the launcher's own (kindOutput), or of one rank for its file (kindCopy).
type output struct {
	a    *agent
	kind kind
	head []byte
}

// Write sends what internal/spawn writes at once: for kindOutput whole lines.
func (o *output) Write(p []byte) (int, error) {
	if !o.a.window.take(len(p)) {
		return 0, io.ErrClosedPipe
	}
	o.a.link.send(o.kind, o.head, p)
	return len(p), nil
}
