package arch

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// timeOfDay are the files that may look at the time of day, and why a clock that jumps does no harm there.
var timeOfDay = map[string]string{
	"backend/mpi/failed.go":       "a rank that fails says when it ends: if clocks differ, others end up to half a second later",
	"bench/session.go":            "a page says on which day it was measured",
	"internal/flight/recorder.go": "a file says when its rank began, to people",
	"internal/flight/layout.go":   "the same, read back: of several jobs' files Read takes those that say they began last",
	"internal/flight/table.go":    "the same, printed",
}

// wallOnly are the names of what gives a time without the reading of the monotonic clock that time.Now has: a
// deadline or a silence that is measured by it would be as wrong as the clock jumps.
var wallOnly = map[string]bool{
	"Unix": true, "UnixNano": true, "UnixMilli": true, "UnixMicro": true, "UTC": true, "AddDate": true, "ModTime": true,
	"ParseInLocation": true, "Gettimeofday": true, "ClockGettime": true, "CLOCK_REALTIME": true,
}

// wallInC is the same in C.
var wallInC = regexp.MustCompile(`\b(CLOCK_REALTIME|gettimeofday|time\s*\(\s*(NULL|0|&)|timespec_get)`)

// TestClock checks that no deadline or heartbeat depends on the time of day, so that they hold while it is set. Of
// Round and Truncate, which durations have too, it sees those of time.Now() itself, and Round(0).
func TestClock(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range allSources(t) {
		if s.test || within(s.folder, "cohorttest") {
			continue
		}
		allowed := make(map[ast.Node]bool)
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, _ := sel.X.(*ast.Ident)
			ofTime := pkg != nil && pkg.Name == "time"
			switch name := sel.Sel.Name; {
			case ofTime && name == "Unix" && isNumber(call.Args[0], "1") && isNumber(call.Args[1], "0"):
				allowed[sel] = true // past by any clock: it ends a read that is under way
			case slices.Contains(s.imports, "time") && // windows have a Local too, and models of GoMLX an In
				(name == "Local" && len(call.Args) == 0 || name == "In" && len(call.Args) == 1),
				name == "Round" && len(call.Args) == 1 && isNumber(call.Args[0], "0"),
				(name == "Round" || name == "Truncate") && isNow(sel.X),
				ofTime && (name == "Parse" || name == "Date"):
				found(t, s, used, name)
			}
			return true
		})
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && wallOnly[sel.Sel.Name] && !allowed[sel] {
				found(t, s, used, sel.Sel.Name)
			}
			return true
		})
	}
	for _, p := range allFiles(t) {
		if strings.HasSuffix(p, ".c") || strings.HasSuffix(p, ".h") {
			if m := wallInC.FindString(read(t, p)); m != "" {
				t.Errorf("%s: %s looks at the time of day", p, m)
			}
		}
	}
	for p := range timeOfDay {
		if !used[p] {
			t.Errorf("%s does not look at the time of day, and needs no place in timeOfDay", p)
		}
	}
}

// found reports a use of the time of day where it has no place.
func found(t *testing.T, s *source, used map[string]bool, name string) {
	t.Helper()
	used[s.path] = true
	if timeOfDay[s.path] == "" {
		t.Errorf("%s: %s: a time without the monotonic clock; if no deadline or heartbeat is measured by it, list the file in timeOfDay", s.path, name)
	}
}

// isNow reports whether an expression is time.Now().
func isNow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Now" {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "time"
}

// isNumber reports whether an expression is a number as written.
func isNumber(e ast.Expr, text string) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Value == text
}

// TestSleepsAreMarked checks that a test that sleeps says beside it that it polls, or why the delay is part of the case.
func TestSleepsAreMarked(t *testing.T) {
	sleep, mark := regexp.MustCompile(`.*\btime\.Sleep\(.*`), regexp.MustCompile(`// (poll\b|on purpose: )`)
	for _, p := range allFiles(t) {
		if !strings.HasSuffix(p, "_test.go") {
			continue
		}
		for _, line := range sleep.FindAllString(read(t, p), -1) {
			if !mark.MatchString(line) {
				t.Errorf("%s: %s: wait for the event, or mark the sleep: // poll, or // on purpose: WHY", p, strings.TrimSpace(line))
			}
		}
	}
}
