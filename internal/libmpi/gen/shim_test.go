package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

var (
	called = regexp.MustCompile(`\(fn\.(\w+)\)`) // what MPI(name) of shim_body.h becomes
	asked  = regexp.MustCompile(`"MPI_(\w+)"`)   // what the loader looks for by name
)

// TestShimCallsFunctionsOfTable checks that the functions that the table says are used are the ones that the shim calls, in one
// ABI or another, so that no library is asked for what nobody needs. That the shim calls no others its compiler checks.
func TestShimCallsFunctionsOfTable(t *testing.T) {
	compiler := need.Program(t, "gcc")
	found := make(map[string]bool)
	for _, abi := range abiNames {
		text := command(t, compiler, "-E", "-P", filepath.Join("..", "shim_"+abi+"_linux.c"))
		for _, m := range called.FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
	}
	for _, m := range asked.FindAllStringSubmatch(readFile(t, "../load_linux.c"), -1) {
		found[m[1]] = true
	}
	if !found["Send"] || !found["Iallreduce"] || !found["Abi_get_version"] {
		t.Fatalf("found %d functions, and not all that must be there: is the search right?", len(found))
	}
	for _, f := range loadTable(t).used() {
		if !found[f.short()] {
			t.Errorf("the table has %s with %q, and the shim does not call it", f.name, f.use)
		}
	}
}
