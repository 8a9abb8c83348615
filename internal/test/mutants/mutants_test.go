package mutants

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mutant is one change of a file, and the test that fails with it.
type mutant struct {
	file     string // from the top of the tree
	old, new string // old stands once in the file
	why      string // what is wrong then
	test     string // package and test: "internal/gate TestInterleaveGate"
	plain    bool   // the test is built without the tag interleave
}

func top(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..") // go test runs a package's tests in its folder
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// change returns the text of the mutant's file with the change.
func (m *mutant) change(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top(t), m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has %d places with\n%s\nwant 1: adapt the mutant (%s)", m.file, n, m.old, m.why)
	}
	return []byte(strings.Replace(string(text), m.old, m.new, 1))
}

// TestMutantsApply checks that every change still has its place, and that there are enough of them.
func TestMutantsApply(t *testing.T) {
	for i := range table {
		table[i].change(t)
	}
}

// patience is how long a mutant may take until its test fails.
const patience = 5 * time.Minute

// TestMutantsAreFound builds every mutant and runs its test, which has to fail.
func TestMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short it is only checked that each mutant has its place")
	}
	for i := range table {
		m := &table[i]
		t.Run(filepath.Base(filepath.Dir(m.file))+"/"+strings.ReplaceAll(m.why, " ", "_"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(changed, m.change(t), 0o600); err != nil {
				t.Fatal(err)
			}
			list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(top(t), m.file): changed}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(overlay, list, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			folder, test, _ := strings.Cut(m.test, " ")
			args := []string{"test", "-vet=off", "-count=1", "-overlay", overlay, "-run", "^" + test + "$"}
			if m.plain {
				args = append(args, "-short")
			} else {
				args = append(args, "-tags", "interleave")
			}
			cmd := exec.CommandContext(ctx, "go", append(args, "./"+folder)...)
			cmd.Dir = top(t)
			begin := time.Now()
			out, err := cmd.CombinedOutput()
			switch text := string(out); {
			case ctx.Err() != nil:
				t.Errorf("no end after %v", patience)
			case strings.Contains(text, "[no tests to run]"):
				t.Errorf("there is no test %s", m.test)
			case err == nil:
				t.Errorf("%s passes with the mutant:\n%s", m.test, text)
			case !strings.Contains(text, "--- FAIL: ") && !strings.Contains(text, "panic: "):
				t.Errorf("the mutant cannot be tested: %v\n%s", err, text)
			}
			t.Logf("%v", time.Since(begin).Round(time.Millisecond))
		})
	}
}
