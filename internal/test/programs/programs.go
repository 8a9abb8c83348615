// Package programs builds the programs that tests start. They stay in out/programs, where other packages' tests and the
// next run find those that have not changed.
package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var (
	mu    sync.Mutex
	built = map[string]bool{} // by packages
)

// Build builds main packages of the workspace, such as cmd/cohort and bench/npb/..., once for all tests, without the
// symbols that take long to link. It returns the folder of the programs.
func Build(t testing.TB, packages ...string) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.work")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatal("no folder above has go.work")
		}
	}
	folder := filepath.Join(root, "out", "programs")
	if built[strings.Join(packages, " ")] {
		return folder
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-ldflags=-s", "-o", folder + string(filepath.Separator)}
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	// On the same file system go renames what it has linked, so that other tests never find half of a program.
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOTMPDIR="+folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	built[strings.Join(packages, " ")] = true
	return folder
}
