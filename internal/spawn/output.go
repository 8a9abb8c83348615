//go:build unix

package spawn

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	maxLine    = 1 << 20                // longest line kept whole, its newline not counted
	maxJSON    = 64 << 20               // the same of a JSON object
	firstRead  = 16 << 10               // read buffer to begin with; it grows while a line is incomplete
	maxWrite   = 64 << 10               // tagged text collected before it is written, one line more at most
	pauseLimit = 100 * time.Millisecond // for more of an unfinished line, before a terminal shows it

	// MaxWrite is more than a [Job] writes to Config.Stdout or Stderr at once if Config.Tag is set: a JSON object
	// and the lines before it.
	MaxWrite = maxJSON + maxLine
)

// output merges the ranks' standard output and error. Whole lines are written under one
// lock, so that lines of different ranks or streams do not mix.
type output struct {
	mu             sync.Mutex
	stdout, stderr io.Writer
	terminal       [2]bool         // standard output or error is one
	tagged         []byte          // lines being tagged; reused
	shown          *stream         // the stream whose unfinished line a terminal shows
	err            error           // the first failed write; nothing is written after it
	failed         func(err error) // called for err, with the lock held, and for copies; it does not block
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
	if o.terminal[1] {
		line = string(o.newLine(nil)) + line
	}
	io.WriteString(o.stderr, line)
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

// A stream is a rank's standard output or error whose lines are tagged. The state of its current line:
//
//	state   what has been written of the line             its next text begins with
//	new     nothing                                       tag
//	split   a piece, with a newline after it              more
//	shown   a part, at whose end a terminal's cursor is   nothing
//
// A line becomes split when it is longer than most, or when other text follows the part that is shown. It becomes shown at a
// terminal if the rest does not come within pauseLimit. shown is o.shown == s; the other two differ in first.
type stream struct {
	o         *output
	w         io.Writer
	terminal  bool   // w is one
	tag, more string // "[name] " and "[name]+ "
	first     string // tag or more
}

// newLine appends the newline that is needed before other text than the rest of the line that is shown.
func (o *output) newLine(out []byte) []byte {
	if o.shown == nil {
		return out
	}
	o.shown.first, o.shown = o.shown.more, nil
	return append(out, '\n')
}

// object reports whether text may be the beginning of a JSON object, which is for another program: it has no tag.
func (s *stream) object(text []byte) bool {
	return s.w == s.o.stdout && s.first == s.tag && s.o.shown != s && len(text) > 0 && text[0] == '{'
}

// most returns the length up to which a line is kept whole.
func (s *stream) most(line []byte) int {
	if s.object(line) {
		return maxJSON
	}
	return maxLine
}

// What follows the text of a write.
const (
	data  = iota
	pause // for some time nothing
	end
)

// write writes the lines of text, and pieces of a line that is too long. Of the unfinished line it returns what it did not
// write: all of it before data, and nothing at the end. At the end the line gets a newline.
func (s *stream) write(text []byte, before int) (rest []byte, err error) {
	o := s.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if before == end && (len(text) == 0 && o.shown == s || len(text) > 0 && text[len(text)-1] != '\n') {
		text = append(text, '\n')
	}
	out := o.tagged[:0]
	flush := func() bool {
		if len(out) > 0 {
			err, out = o.locked(s.w, out), out[:0]
		}
		return err == nil
	}
	for len(text) > 0 {
		n := bytes.IndexByte(text, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(text)
		}
		switch line := text[:n]; {
		case whole && s.object(line) && len(line) <= maxJSON+1 && json.Valid(line):
			if out = s.begin(out); n > maxWrite { // not copied
				if !flush() || o.locked(s.w, line) != nil {
					return nil, o.err
				}
				break
			}
			out = append(out, line...)
		case whole && n <= maxLine+1:
			if s.first == s.tag || n > 1 || o.shown == s { // else the line ends where it was split
				out = s.append(out, line)
			}
			s.first, o.shown = s.tag, nil
		case n > maxLine && (whole || n > s.most(line)):
			n = maxLine
			out = append(s.append(out, line[:n]), '\n')
			s.first, o.shown = s.more, nil
		case before == pause && !s.object(line):
			if line[n-1] == '\r' { // a newline may follow
				n--
			}
			if n > 0 {
				out = s.append(out, line[:n])
				o.shown = s
			}
			rest, text = text[n:], text[:n]
		default:
			rest, text, n = text, nil, 0
		}
		if text = text[n:]; len(out) >= maxWrite && !flush() {
			return nil, err
		}
	}
	flush()
	o.tagged = out
	return rest, err
}

// begin appends what stands before the tag.
func (s *stream) begin(out []byte) []byte {
	if s.terminal {
		return s.o.newLine(out)
	}
	return out
}

// append appends a line or a part of one to out, with what stands before it. A terminal goes back to the beginning of the line
// at a carriage return, where the tag is: it is written again.
func (s *stream) append(out, line []byte) []byte {
	if s.o.shown != s {
		out = append(s.begin(out), s.first...)
	}
	for s.terminal {
		n := bytes.IndexByte(line, '\r') + 1
		if n == 0 || n == len(line) {
			break
		}
		if out = append(out, line[:n]...); line[n] != '\n' && line[n] != '\r' {
			out = append(out, s.first...)
		}
		line = line[n:]
	}
	return append(out, line...)
}

// copyTagged copies the lines of r to w, each with "[name] " before it, but for JSON objects on standard output. If the last
// line has no newline, it gets one. A line that is too long is split into several lines, all but the first with "[name]+ "
// before them. A terminal also shows an unfinished line.
func (o *output) copyTagged(w io.Writer, r source, name string, terminal bool) {
	s := &stream{o: o, w: w, terminal: terminal, tag: "[" + name + "] ", more: "[" + name + "]+ "}
	s.first = s.tag
	buf := make([]byte, 0, firstRead)
	for next := data; next != end; {
		n, err := r.read(buf[len(buf):cap(buf)], terminal && len(buf) > 0 && string(buf) != "\r")
		fresh := buf[len(buf) : len(buf)+n]
		buf = buf[:len(buf)+n]
		switch {
		case err == nil:
			next = data
		case errors.Is(err, errPause):
			next = pause
		default:
			next = end
		}
		if next != data || len(buf) == cap(buf) || bytes.IndexByte(fresh, '\n') >= 0 {
			rest, err := s.write(buf, next)
			if err != nil {
				if next != end {
					io.Copy(io.Discard, r)
				}
				return
			}
			switch {
			case len(rest) == cap(buf):
				buf = append(make([]byte, 0, 2*cap(buf)), rest...)
			case cap(buf) > 2*maxLine && len(rest) < firstRead:
				buf = append(make([]byte, 0, firstRead), rest...)
			default:
				buf = buf[:copy(buf, rest)]
			}
		}
	}
}

// source is where output comes from: a pipe.
type source interface {
	io.Reader
	// read reads as Read does. With wait it returns errPause if no data come within pauseLimit.
	read(b []byte, wait bool) (int, error)
}

var errPause = errors.New("no data yet")
