//go:build unix

package spawn

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
)

const (
	maxLine   = 1 << 20  // longest line kept whole, its newline not counted
	firstRead = 16 << 10 // read buffer to begin with; it grows up to maxLine while a line is incomplete
	maxWrite  = 64 << 10 // tagged text collected before it is written, one line more at most
)

// output merges the ranks' standard output and error. Whole lines are written under one
// lock, so that lines of different ranks or streams do not mix.
type output struct {
	mu             sync.Mutex
	stdout, stderr io.Writer
	tagged         []byte          // lines being tagged; reused
	err            error           // the first failed write; nothing is written after it
	failed         func(err error) // called once, with the lock held, for err
}

// write writes p, which consists of whole lines, unchanged.
func (o *output) write(w io.Writer, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.locked(w, p)
}

func (o *output) locked(w io.Writer, p []byte) error {
	if o.err != nil {
		return o.err
	}
	if _, err := w.Write(p); err != nil {
		o.err = err
		o.failed(err)
	}
	return o.err
}

// say writes a line from the launcher itself, even if writing the ranks' output has failed.
func (o *output) say(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	io.WriteString(o.stderr, line)
}

// writeLines writes lines, which ends in a newline, each with tag before it;
// the first has first instead. A line of standard output that is a JSON object is for another program,
// and has none.
func (o *output) writeLines(w io.Writer, first, tag string, lines []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.tagged[:0]
	for len(lines) > 0 {
		n := bytes.IndexByte(lines, '\n') + 1
		if w != o.stdout || lines[0] != '{' || !json.Valid(lines[:n]) {
			out = append(out, first...)
		}
		out = append(out, lines[:n]...)
		first, lines = tag, lines[n:]
		if len(out) >= maxWrite || len(lines) == 0 {
			if err := o.locked(w, out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	o.tagged = out
	return nil
}

// copy copies r to w as data arrive, until the end.
func (o *output) copy(w io.Writer, r io.Reader) {
	buf := make([]byte, maxWrite)
	for {
		n, err := r.Read(buf)
		if n > 0 && o.write(w, buf[:n]) != nil {
			io.Copy(io.Discard, r) // the rank is being ended and must not block meanwhile
			return
		}
		if err != nil {
			return
		}
	}
}

// copyTagged copies the lines of r to w, each prefixed with "[name] " as writeLines says. If the last line
// has no newline, it gets one. A line longer than maxLine is split into several lines,
// all but the first prefixed with "[name]+ ".
func (o *output) copyTagged(w io.Writer, r io.Reader, name string) {
	tag, more := "["+name+"] ", "["+name+"]+ "
	first := tag
	buf := make([]byte, 0, firstRead)
	for {
		if len(buf) == cap(buf) {
			if len(buf) <= maxLine {
				buf = append(make([]byte, 0, min(2*len(buf), maxLine+1)), buf...)
			} else { // maxLine bytes without a newline, and one more byte
				next := buf[maxLine]
				buf[maxLine] = '\n'
				if o.writeLines(w, first, tag, buf) != nil {
					io.Copy(io.Discard, r)
					return
				}
				first, buf = more, append(buf[:0], next)
			}
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		seen := len(buf)
		buf = buf[:seen+n]
		if end := bytes.LastIndexByte(buf[seen:], '\n') + 1; end > 0 {
			if o.writeLines(w, first, tag, buf[:seen+end]) != nil {
				io.Copy(io.Discard, r)
				return
			}
			first = tag
			buf = buf[:copy(buf, buf[seen+end:])]
		}
		if err != nil {
			if len(buf) > 0 {
				o.writeLines(w, first, tag, append(buf, '\n'))
			}
			return
		}
	}
}
