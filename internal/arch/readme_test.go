package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// fences returns the blocks of a document in a language.
func fences(text, language string) (blocks []string) {
	for {
		_, rest, ok := strings.Cut(text, "```"+language+"\n")
		if !ok {
			return blocks
		}
		block, after, _ := strings.Cut(rest, "```")
		blocks, text = append(blocks, block), after
	}
}

// TestReadme builds the program in README.md as a module of its own, as a reader
// would, and compares what it prints with what README.md says it does.
func TestReadme(t *testing.T) {
	readme := read(t, "README.md")
	programs, outputs := fences(readme, "go"), fences(readme, "text")
	if len(programs) != 1 || len(outputs) != 1 {
		t.Fatalf("README.md has %d go blocks and %d text blocks, want one program and what it prints", len(programs), len(outputs))
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	// The module's own requirements, so that nothing is downloaded that it does not need itself.
	mod := strings.Replace(read(t, "go.mod"), "module "+module, "module example\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+here, 1)
	for name, text := range map[string]string{"main.go": programs[0], "go.mod": mod, "go.sum": read(t, "go.sum")} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	program, tool := filepath.Join(folder, "program"), filepath.Join(folder, "cohort")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the program in README.md does not build: %v\n%s", err, out)
	}
	if out, err := exec.Command("go", "build", "-o", tool, "../../cmd/cohort").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if runtime.GOOS != "linux" {
		t.Log("not run: several ranks as processes are there on Linux only")
		return
	}
	out, err := exec.Command(tool, "run", "-n", "4", program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, want := strings.Split(string(out), "\n"), strings.Split(outputs[0], "\n")
	slices.Sort(got) // the order of the ranks' lines is any
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the program prints\n%s\nREADME.md says\n%s", out, outputs[0])
	}
}
