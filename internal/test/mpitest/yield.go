package mpitest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

//go:embed testdata/yield.c
var yieldSource []byte

const yieldName = "mpich-yield.so"

// Yielding returns variables that make the ranks of MPICH jobs yield to each other. Debian's MPICH
// always spins, so that with more ranks than processors each call takes a time slice of the system;
// nothing else changes. Without a C compiler it returns none, and tests take longer.
func Yielding(t testing.TB) []string {
	t.Helper()
	before := os.Getenv("LD_PRELOAD")
	_, ofOpenMPI := os.LookupEnv("OMPI_COMM_WORLD_RANK")
	if first, _, _ := strings.Cut(before, ":"); ofOpenMPI || filepath.Base(first) == yieldName {
		return nil // this is a rank, which starts no job and may end before t removes its files
	}
	content, err := yieldLibrary()
	if err != nil {
		t.Fatal(err)
	}
	if content == nil {
		return nil
	}
	library := filepath.Join(t.TempDir(), yieldName)
	if err := os.WriteFile(library, content, 0o777); err != nil {
		t.Fatal(err)
	}
	if before != "" {
		library += ":" + before
	}
	return []string{"LD_PRELOAD=" + library}
}

// yieldLibrary returns the shared library, nil without a C compiler. It is compiled once per
// process: tests start many jobs.
var yieldLibrary = sync.OnceValues(func() ([]byte, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "mpitest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, library := filepath.Join(dir, "yield.c"), filepath.Join(dir, yieldName)
	if err := os.WriteFile(source, yieldSource, 0o666); err != nil {
		return nil, err
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", cc, source, err, out)
	}
	return os.ReadFile(library)
})
