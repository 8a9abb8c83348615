//go:build unix

package spawn

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lineOf returns line i of a rank's stream: its own name, then filling whose
// kind and length follow from it.
func lineOf(rank, stream, i int) string {
	r := rand.New(rand.NewPCG(uint64(rank*2+stream), uint64(i)))
	n := r.IntN(200)
	if i%17 == 0 {
		n = r.IntN(100_000)
	}
	return fmt.Sprintf("%d/%d/%d %s", rank, stream, i, strings.Repeat(string(rune('a'+r.IntN(26))), n))
}

const linesOfStream = 300

// linesProgram writes all lines of both streams, in pieces that have nothing to
// do with lines.
func linesProgram([]string) {
	rank, _ := strconv.Atoi(me())
	done := make(chan bool)
	for stream, f := range []*os.File{os.Stdout, os.Stderr} {
		go func() {
			var text []byte
			for i := range linesOfStream {
				text = append(append(text, lineOf(rank, stream, i)...), '\n')
			}
			r := rand.New(rand.NewPCG(1, uint64(rank)))
			for len(text) > 0 {
				n := min(1+r.IntN(5000), len(text))
				f.Write(text[:n])
				text = text[n:]
			}
			done <- true
		}()
	}
	<-done
	<-done
}

func TestLinesOfEightRanksStayWhole(t *testing.T) {
	const ranks = 8
	cfg := program(t, ranks, "lines")
	both := new(buffer) // as with 2>&1
	cfg.Stdout, cfg.Stderr = both, both
	if r := wait(t, start(t, cfg)); r.Status != 0 {
		t.Fatalf("status %d\n%.2000s", r.Status, both)
	}
	next := map[[2]int]int{}
	for line := range strings.Lines(both.String()) {
		var tag, rank, stream, i int
		if _, err := fmt.Sscanf(line, "[%d] %d/%d/%d ", &tag, &rank, &stream, &i); err != nil {
			t.Fatalf("%v: %.200q", err, line)
		}
		if want := fmt.Sprintf("[%d] %s\n", rank, lineOf(rank, stream, i)); line != want {
			t.Fatalf("got %.200q\nwant %.200q", line, want)
		}
		if k := [2]int{rank, stream}; next[k] != i {
			t.Fatalf("rank %d stream %d: line %d, want %d", rank, stream, i, next[k])
		} else {
			next[k]++
		}
	}
	for rank := range ranks {
		for stream := range 2 {
			if n := next[[2]int{rank, stream}]; n != linesOfStream {
				t.Errorf("rank %d stream %d: %d lines, want %d", rank, stream, n, linesOfStream)
			}
		}
	}
}

const endlessBytes = 5*maxLine + 12345

// endlessProgram writes a line that is longer than is kept on rank 0, and short
// ones on others.
func endlessProgram([]string) {
	if me() != "0" {
		for range 1000 {
			fmt.Println("short")
		}
		return
	}
	chunk := bytes.Repeat([]byte("x"), 10_000)
	for n := endlessBytes; n > 0; n -= len(chunk) {
		os.Stdout.Write(chunk[:min(n, len(chunk))])
	}
}

func TestLongLineComesInPieces(t *testing.T) {
	cfg := program(t, 3, "endless")
	wait(t, start(t, cfg))
	got, short, pieces := 0, 0, 0
	for line := range strings.Lines(cfg.Stdout.(*buffer).String()) {
		text, rank0 := strings.CutPrefix(line, "[0]")
		if !rank0 {
			if line != "[1] short\n" && line != "[2] short\n" {
				t.Fatalf("got %.100q", line)
			}
			short++
			continue
		}
		mark := " "
		if pieces > 0 {
			mark = "+ "
		}
		text, ok := strings.CutPrefix(text, mark)
		text = strings.TrimSuffix(text, "\n")
		if !ok || strings.Trim(text, "x") != "" || len(text) > maxLine {
			t.Fatalf("piece %d: %d bytes, %.50q", pieces, len(text), line)
		}
		got += len(text)
		pieces++
	}
	if got != endlessBytes || pieces != 6 || short != 2000 {
		t.Errorf("%d bytes in %d pieces, want %d in 6; %d short lines, want 2000", got, pieces, endlessBytes, short)
	}
}

// text is a source without pauses, and pauses one with a pause after each text.
type text struct{ io.Reader }

func (t text) read(b []byte, _ bool) (int, error) { return t.Read(b) }

type pauses []string

func (p *pauses) Read(b []byte) (int, error) { return p.read(b, false) }

func (p *pauses) read(b []byte, wait bool) (n int, err error) {
	switch {
	case len(*p) == 0:
		return 0, io.EOF
	case (*p)[0] != "":
		n = copy(b, (*p)[0])
		(*p)[0] = (*p)[0][n:]
		return n, nil
	}
	*p = (*p)[1:]
	if wait {
		return 0, errPause
	}
	return p.read(b, wait)
}

func TestLinesAreTagged(t *testing.T) {
	full := strings.Repeat("y", maxLine)
	object := func(n int) string { return `{"a":"` + strings.Repeat("z", n-8) + `"}` }
	broken := "{" + full[:maxLine-1] + "y"
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"empty line", "\n", "[7] \n"},
		{"no newline at the end", "a\nb", "[7] a\n[7] b\n"},
		{"carriage returns and zeros", "a\r\n\x00\n1%\r2%\n", "[7] a\r\n[7] \x00\n[7] 1%\r2%\n"},
		{"longest line", full + "\nz\n", "[7] " + full + "\n[7] z\n"},
		{"JSON objects", "{\"a\": 1}\n{a}\n[1]\n {}\n{}", "{\"a\": 1}\n[7] {a}\n[7] [1]\n[7]  {}\n{}\n"},
		{"one byte more", full + "y\nz\n", "[7] " + full + "\n[7]+ y\n[7] z\n"},
		{"the rest is a JSON object", full + "{}\n{}\n", "[7] " + full + "\n[7]+ {}\n{}\n"},
		{"long JSON object", "a\n" + object(3*maxLine) + "\nb\n", "[7] a\n" + object(3*maxLine) + "\n[7] b\n"},
		{"long line that is no JSON object", broken + "\n{}\n", "[7] " + broken[:maxLine] + "\n[7]+ y\n{}\n"},
	} {
		var got bytes.Buffer
		o := &output{stdout: &got, failed: func(error) {}}
		o.copyTagged(&got, text{strings.NewReader(c.in)}, "7", false)
		if got.String() != c.want {
			t.Errorf("%s: got %.60q (%d bytes), want %.60q (%d)", c.name, got.String(), got.Len(), c.want, len(c.want))
		}
	}
	var got lines
	o := &output{stdout: &got, failed: func(error) {}}
	if o.copyTagged(&got, text{strings.NewReader(object(maxJSON + 1))}, "7", false); got != 65 {
		t.Errorf("a JSON object that is too long comes in %d pieces, want 65", got)
	}
}

// lines counts the lines that are written to it.
type lines int

func (l *lines) Write(b []byte) (int, error) {
	*l += lines(bytes.Count(b, []byte("\n")))
	return len(b), nil
}

// TestTerminalShowsUnfinishedLines checks what a terminal gets from a rank that pauses within a line, and that only a terminal
// gets it.
func TestTerminalShowsUnfinishedLines(t *testing.T) {
	for _, c := range []struct {
		name           string
		in             pauses
		terminal, file string
	}{
		{"prompt", pauses{"how many? ", "42\nnext\n"}, "[7] how many? |42\n[7] next\n|", "[7] how many? 42\n[7] next\n|"},
		{"prompt at the end", pauses{"a\nb? "}, "[7] a\n|[7] b? |\n|", "[7] a\n|[7] b? \n|"},
		{"progress", pauses{"\r1%", "\r2%", "\r3%\n"}, "[7] \r[7] 1%|\r[7] 2%|\r[7] 3%\n|", "[7] \r1%\r2%\r3%\n|"},
		{"progress with the return behind", pauses{"1%\r", "2%\r", "3%\r\n"}, "[7] 1%|\r[7] 2%|\r[7] 3%\r\n|", "[7] 1%\r2%\r3%\r\n|"},
		{"JSON object", pauses{`{"a":`, "1}\n"}, "{\"a\":1}\n|", "{\"a\":1}\n|"},
	} {
		for terminal, want := range map[bool]string{true: c.terminal, false: c.file} {
			got := new(pieces)
			o := &output{stdout: got, failed: func(error) {}}
			in := slices.Clone(c.in)
			o.copyTagged(got, &in, "7", terminal)
			if got.String() != want {
				t.Errorf("%s, terminal %v: got %q, want %q", c.name, terminal, got, want)
			}
		}
	}
}

// pieces is what was written, with a bar after each write.
type pieces struct{ text string }

func (p *pieces) String() string { return p.text }

func (p *pieces) Write(b []byte) (int, error) {
	p.text += string(b) + "|"
	return len(b), nil
}

// TestLineBelongsToOneStream has others write while a terminal shows an unfinished line.
func TestLineBelongsToOneStream(t *testing.T) {
	got := new(pieces)
	o := &output{stdout: got, stderr: got, terminal: [2]bool{true, true}, failed: func(error) {}}
	of := func(rank string) *stream {
		return &stream{o: o, w: got, terminal: true, tag: "[" + rank + "] ", more: "[" + rank + "]+ ", first: "[" + rank + "] "}
	}
	a, b := of("1"), of("2")
	a.write([]byte("one"), pause)
	b.write([]byte("two\n"), data)
	a.write([]byte(" and"), pause)
	o.say("cohort: said\n")
	a.write([]byte(" rest\n"), data)
	a.write([]byte("x"), pause)
	b.write([]byte("{}\n"), data)
	a.write([]byte("\n"), data)
	b.write([]byte("y"), pause)
	b.write(nil, end)
	want := "[1] one|\n[2] two\n|[1]+  and|\ncohort: said\n|[1]+  rest\n|[1] x|\n{}\n|[2] y|\n|"
	if got.String() != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestUntaggedOutputIsExact(t *testing.T) {
	input := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(input)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	go func() {
		write.Write(input)
		write.Close()
	}()
	cfg := program(t, 1, "cat")
	cfg.Tag, cfg.Stdin = false, read
	if res := wait(t, start(t, cfg)); res.Status != 0 {
		t.Fatalf("status %d", res.Status)
	}
	got, ok := strings.CutPrefix(cfg.Stdout.(*buffer).String(), "ready\n")
	got, ok2 := strings.CutSuffix(got, fmt.Sprintf("\nbytes: %d error: <nil>\n", len(input)))
	if !ok || !ok2 || sha256.Sum256([]byte(got)) != sha256.Sum256(input) {
		t.Errorf("%d bytes came out of %d", len(got), len(input))
	}
}

// failing is a writer that fails with err after n bytes.
type failing struct {
	n   int
	err error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, f.err
	}
	return len(p), nil
}

func TestFailedWriteEndsJob(t *testing.T) {
	for _, c := range []struct {
		err     error
		status  int
		message string
	}{
		{syscall.EPIPE, 141, ""},
		{syscall.ENOSPC, 1, "cannot be written"},
	} {
		cfg := program(t, 2, "stubborn")
		cfg.Stdout = &failing{3, c.err}
		r := wait(t, start(t, cfg))
		if r.Status != c.status || !errors.Is(r.Err, c.err) || r.First != -1 {
			t.Errorf("%v: got %+v", c.err, r)
		}
		if text := cfg.Stderr.(*buffer).String(); strings.Contains(text, "written") != (c.message != "") {
			t.Errorf("%v: stderr: %s", c.err, text)
		}
	}
}

// held is a writer that waits before its first write.
type held struct {
	buffer
	free chan struct{}
}

func (h *held) Write(p []byte) (int, error) {
	<-h.free
	return h.buffer.Write(p)
}

func TestSlowReaderLosesNothing(t *testing.T) {
	cfg := program(t, 2, "lines")
	out := &held{free: make(chan struct{})}
	cfg.Stdout, cfg.Stderr = out, io.Discard
	cfg.Programs[0].Args = []string{}
	j := start(t, cfg)
	// Longer than anything the launcher would wait for a pipe that brings nothing.
	time.AfterFunc(2*drainLimit, func() { close(out.free) })
	wait(t, j)
	if n := strings.Count(out.String(), "\n"); n != 2*linesOfStream {
		t.Errorf("%d lines, want %d", n, 2*linesOfStream)
	}
}

// TestForeignWriterDoesNotKeepJob has a process that has left its rank's group write to the rank's output until that is closed: as
// fast as it can, and a little now and then.
func TestForeignWriterDoesNotKeepJob(t *testing.T) {
	for _, pause := range []string{"0s", "200ms"} {
		cfg := program(t, 1, "deserted", pause)
		if r := wait(t, start(t, cfg)); r.Status != 0 {
			t.Errorf("pause %s: %+v", pause, r)
		}
	}
}

// TestInterruptWhileOutputIsUnwrittenIsNoSuccess has all ranks succeed, and the user give up waiting for a reader of their output.
func TestInterruptWhileOutputIsUnwrittenIsNoSuccess(t *testing.T) {
	cfg := program(t, 1, "exit", "0=0")
	stderr := &held{free: make(chan struct{})}
	cfg.Stderr, cfg.Signals = stderr, make(chan os.Signal)
	j := start(t, cfg)
	for syscall.Kill(j.ranks[0].pgid, 0) == nil {
		runtime.Gosched()
	}
	for {
		select {
		case cfg.Signals <- syscall.SIGINT:
		case <-j.done:
			close(stderr.free)
			if r := wait(t, j); r.Status != 130 || r.Err == nil {
				t.Errorf("%+v, want status 130", r)
			}
			<-j.ranks[0].drained
			return
		}
	}
}

func BenchmarkTagging(b *testing.B) {
	all := bytes.Repeat([]byte("a line of forty characters, more or less\n"), 1<<14)
	b.SetBytes(int64(len(all)))
	o := &output{failed: func(error) {}}
	for b.Loop() {
		o.copyTagged(io.Discard, text{bytes.NewReader(all)}, "3", false)
	}
}
