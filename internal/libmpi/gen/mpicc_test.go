package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// library is an MPI library as its compiler shows it.
type library struct {
	compiler string
	abi      int
	major    int             // of the library's own version
	level    string          // of MPI: 4.0
	declared map[string]bool // functions, and macros that look like functions
}

// include is how a program gets all of a library.
const include = `#include <stddef.h>
#include <stdint.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
`

func loadTable(t *testing.T) *table {
	t.Helper()
	table, err := parse("../mpi.table")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// eachLibrary runs a test with the compiler of every library.
func eachLibrary(t *testing.T, test func(t *testing.T, lib *library)) {
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) { test(t, inspect(t, l.Compiler(t))) })
}

var (
	macro       = regexp.MustCompile(`(?m)^#define (\w+)(\(\S*)?(?: (.*))?$`)
	declaration = regexp.MustCompile(`\b(MPIX?_[A-Z]\w*)\s*\(`)
)

// inspect finds out what mpi.h declares.
func inspect(t *testing.T, compiler string) *library {
	t.Helper()
	lib := &library{compiler: compiler, declared: make(map[string]bool)}
	source := filepath.Join(t.TempDir(), "include.c")
	write(t, source, include)
	macros := make(map[string]string)
	for _, m := range macro.FindAllStringSubmatch(command(t, compiler, "-E", "-dM", source), -1) {
		macros[m[1]] = m[3]
		if m[2] != "" && strings.HasPrefix(m[1], "MPI") {
			lib.declared[m[1]] = true
		}
	}
	text := command(t, compiler, "-E", "-P", source)
	for _, m := range declaration.FindAllStringSubmatch(text, -1) {
		lib.declared[m[1]] = true
	}
	lib.level = macros["MPI_VERSION"] + "." + macros["MPI_SUBVERSION"]
	number := func(name string) int {
		n, err := strconv.Atoi(macros[name])
		if err != nil {
			t.Fatalf("%s of %s is %q", name, compiler, macros[name])
		}
		return n
	}
	switch {
	case macros["MPI_ABI_VERSION"] != "":
		lib.abi = standard
	case macros["OPEN_MPI"] != "":
		lib.abi, lib.major = ompi, number("OMPI_MAJOR_VERSION")
	case macros["MPICH_NUMVERSION"] != "":
		lib.abi, lib.major = mpich, number("MPICH_NUMVERSION")/10000000
	default:
		t.Fatalf("%s is of no family that is known", compiler)
	}
	if !lib.declared["MPI_Send"] || !lib.declared["MPI_Init_thread"] {
		t.Fatalf("%s declares no MPI_Send: is the search right?", compiler)
	}
	return lib
}

// has reports whether the library's version has a constant.
func (l *library) has(t *testing.T, c constant) bool {
	if c.value[l.abi] == "" {
		return false
	}
	if c.from[l.abi] == "" {
		return true
	}
	from, err := strconv.Atoi(c.from[l.abi])
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return l.major >= from
}

// command runs a program and returns what it prints.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// headers returns the folder with the generated headers.
func headers(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
