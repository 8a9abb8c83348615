package interleave

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
)

// note adds a step to the trace.
func (x *Run) note(t *thread, op string, v any) {
	if !x.e.tracing {
		return
	}
	line := fmt.Sprintf("%-12s %s", t.name, op)
	if t.at != nil {
		line += " " + x.nameOf(t.at)
	}
	if r := reflect.ValueOf(v); v != nil && r.Kind() != reflect.Struct {
		line += fmt.Sprintf(": %v", v)
	}
	x.trace = append(x.trace, fmt.Sprintf("%-64s %s", line, caller()))
}

// storyMost is how many steps of a schedule are printed, the last ones.
const storyMost = 300

// story is the trace as text.
func (x *Run) story() string {
	if n := len(x.trace) - storyMost; n > 0 {
		return fmt.Sprintf("(%d steps)\n", n) + strings.Join(x.trace[n:], "\n")
	}
	return strings.Join(x.trace, "\n")
}

// doing says which step a thread cannot take.
func (x *Run) doing(t *thread) string {
	if t.at == nil {
		return t.op
	}
	return t.op + " " + x.nameOf(t.at)
}

// nameOf returns the name of a word, or its type and a number.
func (x *Run) nameOf(l *location) string {
	if l.keep == nil {
		return "the life of a thread"
	}
	a := address(l.keep)
	name := x.names[a]
	if name == "" {
		name = fmt.Sprintf("%s %d", strings.TrimPrefix(reflect.TypeOf(l.keep).String(), "*atomic."), l.number)
		x.names[a] = name
	}
	return name
}

// caller returns the line outside of this package and of package word that makes the access.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		own := strings.Contains(f.Function, "/internal/word.") || strings.Contains(f.Function, "/internal/interleave.")
		if !own || strings.HasSuffix(f.File, "_test.go") {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}
