package mpitest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed testdata/yield.c
var yieldSource []byte

const yieldName = "mpich-yield.so"

// Yielding returns variables under which the ranks of MPICH jobs give way to each
// other where they are more than processors. Debian's MPICH spins, whatever it is
// told, so that a call takes as long as the time slices of the system; nothing
// else changes. Without a C compiler there are none, and tests take longer.
func Yielding(t testing.TB) []string {
	t.Helper()
	before := os.Getenv("LD_PRELOAD")
	if first, _, _ := strings.Cut(before, ":"); filepath.Base(first) == yieldName {
		return nil // this is one of those ranks
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		return nil
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "yield.c"), filepath.Join(dir, yieldName)
	if err := os.WriteFile(source, yieldSource, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", cc, source, err, out)
	}
	if before != "" {
		library += ":" + before
	}
	return []string{"LD_PRELOAD=" + library}
}
