//go:build amd64 && !interleave && !race

package word

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// assembly returns the instructions of the functions in testdata/assembly, without their places.
func assembly(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "build", "-gcflags=-S", "-o", "/dev/null", "./testdata/assembly").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	functions := map[string][]string{}
	name := ""
	begin := regexp.MustCompile(`^main\.(\w+) STEXT`)
	line := regexp.MustCompile(`^\t0x[0-9a-f]+ \d+ \([^)]*\)\t(.*)$`)
	for l := range strings.Lines(string(out)) {
		l = strings.TrimRight(l, "\n")
		if m := begin.FindStringSubmatch(l); m != nil {
			name = m[1]
		} else if m := line.FindStringSubmatch(l); m != nil && !strings.HasPrefix(m[1], "PCDATA") && !strings.HasPrefix(m[1], "FUNCDATA") &&
			!strings.HasPrefix(m[1], "TEXT") && !strings.HasPrefix(m[1], "NOP") && !strings.HasPrefix(m[1], "XCHGL\tAX, AX") {
			functions[name] = append(functions[name], m[1])
		}
	}
	return functions
}

// A release is one plain store. The compiler keeps it behind the stores before it and before the loads after it.
func TestReleaseStaysInItsPlace(t *testing.T) {
	code := assembly(t)["publish"]
	at := func(pattern string) int {
		i := slices.IndexFunc(code, regexp.MustCompile(pattern).MatchString)
		if i < 0 {
			t.Fatalf("no %s in\n%s", pattern, strings.Join(code, "\n"))
		}
		return i
	}
	release := at(`^MOVL\t\w+, \(AX\)$`)
	for _, field := range []string{`^MOVL\t\w+, 4\(AX\)$`, `^MOVQ\t\w+, 8\(AX\)$`, `^MOVQ\t\w+, 16\(AX\)$`} {
		if at(field) > release {
			t.Errorf("the store to %s comes after the release:\n%s", field, strings.Join(code, "\n"))
		}
	}
	if look := at(`^(MOVL\t\(\w+\), |CMPL\t\(\w+\), )`); look < release {
		t.Errorf("the load of the next word comes before the release:\n%s", strings.Join(code, "\n"))
	}
	for _, c := range code {
		if strings.HasPrefix(c, "XCHG") || strings.HasPrefix(c, "LOCK") || strings.HasPrefix(c, "CALL\tmain") {
			t.Errorf("%s in a release:\n%s", c, strings.Join(code, "\n"))
		}
	}
}

// Words compile to the atomic operations and calls of sync/atomic and sync, and notes of payloads to nothing. Registers
// differ.
func TestWordsCostNothing(t *testing.T) {
	code := assembly(t)
	heavy := func(function string) (list []string) {
		for _, c := range code[function] {
			op, callee, _ := strings.Cut(c, "\t")
			switch {
			case op == "CALL":
				list = append(list, callee)
			case op == "LOCK", strings.HasPrefix(op, "XCHG"), strings.HasPrefix(op, "CMPXCHG"), strings.HasPrefix(op, "XADD"):
				list = append(list, op)
			}
		}
		return list
	}
	words, atomics := heavy("words"), heavy("atomics")
	if len(words) < 10 || !slices.Equal(words, atomics) {
		t.Errorf("words: %q\natomics: %q", words, atomics)
	}
	if w, a := len(code["words"]), len(code["atomics"]); w > a+4 {
		t.Errorf("%d instructions with words, %d without", w, a)
	}
}
