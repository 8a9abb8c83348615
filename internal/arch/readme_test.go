package arch

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/programs"
)

// example is a program in a document, with the output that the document gives for it.
type example struct {
	document, program, output string
}

// examples returns the Go programs of a document. A text block behind a program is its output.
func examples(t *testing.T, document string) (list []example) {
	t.Helper()
	blocks := strings.Split("\n"+read(t, document), "\n```")
	for i := 1; i < len(blocks); i += 2 {
		language, text, _ := strings.Cut(blocks[i], "\n")
		switch {
		case language == "go" && strings.HasPrefix(text, "package main\n"):
			list = append(list, example{document: document, program: text})
		case language == "text" && len(list) > 0:
			list[len(list)-1].output = text
		}
	}
	return list
}

// TestDocumentedProgramsPrintWhatDocumentsSay builds the programs of all documents in a module outside
// the repository, as a reader would. It runs those that have an output with four ranks, and compares. With -short it
// runs those of README and the tutorial's first page.
func TestDocumentedProgramsPrintWhatDocumentsSay(t *testing.T) {
	var list []example
	for _, p := range allFiles(t) {
		if path.Ext(p) == ".md" {
			list = append(list, examples(t, p)...)
		}
	}
	for i, e := range list {
		if testing.Short() && e.document != "README.md" && e.document != "docs/tutorial/1-first-program.md" {
			list[i].output = ""
		}
	}
	if !slices.ContainsFunc(list, func(e example) bool { return e.document == "README.md" && e.output != "" }) {
		t.Fatal("README.md has no program with an output: is the search right?")
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	// The module's own requirements, so that nothing else is downloaded.
	folder := t.TempDir()
	mod := strings.Replace(read(t, "go.mod"), "module "+module, "module example", 1)
	// In a workspace the compiler's cache has the library already.
	_, version, _ := strings.Cut(mod, "\ngo ")
	version, _, _ = strings.Cut(version, "\n")
	files := map[string]string{"go.mod": mod, "go.sum": read(t, "go.sum"), "go.work": fmt.Sprintf("go %s\nuse (\n.\n%s\n)\n", version, here)}
	for i, e := range list {
		files[fmt.Sprintf("program%d/main.go", i)] = e.program
	}
	for name, text := range files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(folder, "bin")
	link := []string{"build", "-ldflags=-s", "-o", bin + "/"}
	for i, e := range list {
		if e.output != "" {
			link = append(link, fmt.Sprintf("./program%d", i))
		}
	}
	for _, args := range [][]string{{"vet", "./..."}, link} { // those that do not run need no linking
		build := exec.Command("go", args...)
		build.Dir = folder
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("a program of %v does not build: %v\n%s", list, err, out)
		}
	}
	if runtime.GOOS != "linux" {
		t.Log("not run: ranks that are processes need Linux")
		return
	}
	for i, e := range list {
		if e.output == "" {
			continue
		}
		program := filepath.Join(bin, fmt.Sprintf("program%d", i))
		out, err := exec.Command(filepath.Join(programs.Build(t, "cmd/cohort"), "cohort"), "run", "-n", "4", program).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s\n%s", e.document, err, e.program, out)
		}
		got, want := strings.Split(strings.TrimSpace(string(out)), "\n"), strings.Split(strings.TrimSpace(e.output), "\n")
		slices.Sort(got) // the ranks' lines come in any order
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: a program prints\n%s\nthe document says\n%s", e.document, out, e.output)
		}
	}
}
