//go:build unix

package remote

import (
	"bytes"
	"io"
	"os"
)

// A printer writes the hosts' output and the launcher's messages in the order in which they are added. The hosts' windows
// limit the amount.
type printer struct{ *queue[piece] }

type piece struct {
	w    io.Writer
	b    []byte
	used func() // called when it has been written, or never will be; nil for the launcher's own messages
}

// newPrinter returns a printer that calls failed once, for the first write that fails.
func newPrinter(failed func(error)) *printer {
	bad := map[io.Writer]bool{} // nothing more is written to these, but for the launcher's own messages
	return &printer{newQueue(func(pieces []piece) error {
		for _, x := range pieces {
			if !bad[x.w] || x.used == nil {
				if _, err := x.w.Write(x.b); err != nil {
					if len(bad) == 0 {
						failed(err)
					}
					bad[x.w] = true
				}
			}
			if x.used != nil {
				x.used()
			}
		}
		return nil
	})}
}

// inputWriter sends input to the host of rank 0.
type inputWriter struct {
	link   *link
	window *credit
}

func (w *inputWriter) Write(p []byte) (int, error) {
	for rest := bytes.Clone(p); len(rest) > 0; {
		b := rest[:min(len(rest), maxChunk)]
		rest = rest[len(b):]
		if !w.window.take(charge(b)) {
			return 0, os.ErrClosed
		}
		w.link.send(message{Kind: kindInput, Data: b})
	}
	return len(p), nil
}

// Close ends rank 0's input.
func (w *inputWriter) Close() error {
	w.link.say(kindInput)
	return nil
}

// output sends a stream of the ranks to the launcher, in messages that but for Data are as one.
type output struct {
	a   *agent
	one message
}

// Write sends what internal/spawn writes at once: for kindOutput whole lines.
func (o *output) Write(p []byte) (int, error) {
	if !o.a.window.take(len(p)) {
		return 0, io.ErrClosedPipe
	}
	m := o.one
	m.Data = bytes.Clone(p)
	o.a.link.send(m)
	return len(p), nil
}
