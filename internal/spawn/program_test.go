//go:build unix

package spawn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// write makes a file with a mode in dir and returns its path.
func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindLocatesProgram(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir, "tool", "#!/bin/sh\n", 0o755)
	write(t, dir, "data", "x", 0o644)
	write(t, dir, "main.go", "package main\n", 0o644)
	if err := os.MkdirAll("cmd/prog", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, message string }{
		{"./tool", "./tool", ""},
		{filepath.Join(dir, "tool"), filepath.Join(dir, "tool"), ""},
		{"tool", "", "to run the file in this folder, write ./tool"},
		{"nosuch", "", "not found in PATH"},
		{"./nosuch", "", "./nosuch: no such file"},
		{"./data", "", "chmod +x"},
		{"./main.go", "", "give the folder of its package"},
		{"/dev/null", "", "neither a regular file nor a folder"},
		{"", "", "empty"},
		{".", ".", ""},
		{"cmd", "cmd", ""},
		{"./cmd/prog", "./cmd/prog", ""},
	} {
		got, folder, err := Find(c.name)
		switch {
		case c.message != "" && (err == nil || !strings.Contains(err.Error(), c.message)):
			t.Errorf("Find(%q): got %v, want %q", c.name, err, c.message)
		case c.message == "" && (err != nil || got != c.path):
			t.Errorf("Find(%q): got %v, %v, want %q", c.name, got, err, c.path)
		case c.message == "" && folder != !strings.Contains(c.path, "tool"):
			t.Errorf("Find(%q): folder %v", c.name, folder)
		}
	}
	if got, _, err := Find("sh"); err != nil || !filepath.IsAbs(got) {
		t.Errorf("Find(sh): %v, %v", got, err)
	}
}

// module makes a folder with a Go module of one file.
func module(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.org/prog\n\ngo 1.26\n", 0o644)
	write(t, dir, "prog.go", text, 0o644)
	return dir
}

func TestBuildMakesExecutable(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	empty := func(when string) {
		t.Helper()
		if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
			t.Errorf("%s: left behind: %v", when, left)
		}
	}

	good := module(t, "package main\n\nfunc main() { println(\"built\") }\n")
	path, remove, err := Build(t.Context(), good, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := new(buffer)
	if r := wait(t, start(t, Config{Programs: Programs{{path, nil, 2}}, Tag: true, Stdout: out, Stderr: out})); r.Status != 0 {
		t.Errorf("%+v", r)
	}
	if n := strings.Count(out.String(), "] built\n"); n != 2 {
		t.Errorf("got %q", out)
	}
	remove()
	empty("after a good build")

	for _, c := range []struct{ name, text, message string }{
		{"compile error", "package main\n\nfunc main() { undefinedName() }\n", "./prog.go:3:15: undefined: undefinedName"},
		{"no main package", "package prog\n", "not a main package"},
		{"no main function", "package main\n", "function main is undeclared"},
	} {
		_, _, err := Build(t.Context(), module(t, c.text), nil)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.message)
		}
		empty(c.name)
	}
	if _, _, err := Build(t.Context(), t.TempDir(), nil); err == nil {
		t.Error("an empty folder is no error")
	}
	empty("empty folder")

	stop, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped")
	cancel(why)
	if _, _, err := Build(stop, good, nil); !errors.Is(err, why) {
		t.Errorf("stopped: got %v", err)
	}
	empty("stopped")

	t.Setenv("PATH", t.TempDir())
	if _, _, err := Build(t.Context(), good, nil); err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("without Go: got %v", err)
	}
	empty("without Go")
}

func TestExplainNamesReasonOfFailedStart(t *testing.T) {
	dir := t.TempDir()
	own, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if string(own[:4]) == "\x7fELF" { // the machine is the half word at byte 18 (ELF-64, figure 3)
		other := byte(183) // aarch64
		if runtime.GOARCH == "arm64" {
			other = 62 // x86_64
		}
		own[18], own[19] = other, 0
		path := write(t, dir, "foreign", string(own), 0o755)
		_, err := Start(Config{Programs: Programs{{path, nil, 2}}})
		if err == nil || !strings.Contains(err.Error(), "neither a program for "+runtime.GOOS+"/"+runtime.GOARCH) {
			t.Errorf("foreign program: got %v", err)
		}
	}
	for _, c := range []struct{ name, text, message string }{
		{"noline", "echo hello\n", "nor a script, which begins with a line such as #!/bin/sh"},
		{"lost", "#!/no/such/interpreter -x\n", "the file is there, but not the interpreter in its first line"},
	} {
		path := write(t, dir, c.name, c.text, 0o755)
		_, err := Start(Config{Programs: Programs{{path, nil, 2}}})
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.message)
		}
	}
}
