package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// probe is a C expression whose value is compared.
type probe struct{ name, expression string }

var handleTypes = []string{"Comm", "Datatype", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Win"}

// hidden are the fields of MPI_Status that the library has for itself and the shim reads.
var hidden = [numABIs][]string{mpich: {"count_lo", "count_hi_and_cancelled"}, ompi: {"_cancelled", "_ucount"}}

// probes returns what is compared of an ABI: constants that pass the filter, handles, addresses, layouts.
func (t *table) probes(abi int, has func(constant) bool) (list []probe) {
	value := func(name string) { list = append(list, probe{name, "(long long)(intptr_t)" + name}) }
	for _, c := range append(append([]constant(nil), t.constants...), t.classes...) {
		if has(c) {
			value(c.name)
		}
	}
	for _, h := range t.handles {
		value(h.name)
	}
	for _, a := range t.addresses {
		value(a.name)
	}
	size := func(name string) {
		list = append(list, probe{"sizeof " + name, "(long long)sizeof(" + name + ")"})
	}
	for _, h := range handleTypes {
		size("MPI_" + h)
	}
	for _, s := range []string{"MPI_Status", "MPI_Aint", "MPI_Count", "MPI_Offset"} {
		size(s)
	}
	for _, f := range append([]string{"MPI_SOURCE", "MPI_TAG", "MPI_ERROR"}, hidden[abi]...) {
		list = append(list, probe{"offset " + f, "(long long)offsetof(MPI_Status, " + f + ")"})
		list = append(list, probe{"size " + f, "(long long)sizeof(((MPI_Status *)0)->" + f + ")"})
	}
	return list
}

// values returns C that writes the values of the probes to an array.
func values(name string, probes []probe) string {
	var b strings.Builder
	fmt.Fprintf(&b, "void %s(long long *v) {\n", name)
	for _, p := range probes {
		fmt.Fprintf(&b, "\t*v++ = %s;\n", p.expression)
	}
	b.WriteString("}\n")
	return b.String()
}

// ours is the prologue of a file that uses a generated header. Open MPI's handles are found by the names
// of the symbols, as the loader does it.
func ours(abi int) string {
	text := fmt.Sprintf("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include \"abi_%s.h\"\n", abiNames[abi])
	if abi == ompi {
		return text + `void *coh_ompi_sym[COH_OMPI_SYMS];
int load(void) {
	int lost = 0;
	for (int i = 0; i < COH_OMPI_SYMS; i++)
		if (!(coh_ompi_sym[i] = dlsym(RTLD_DEFAULT, coh_ompi_names[i]))) lost++;
	return lost;
}
`
	}
	return text + "int load(void) { return 0; }\n"
}

// TestConstantsAgreeWithLibraries compares the generated header of each library's ABI with the library's own: values of
// constants and handles, sizes of types, places in MPI_Status. One program has both, in two files; of Open
// MPI's handles it compares addresses.
func TestConstantsAgreeWithLibraries(t *testing.T) {
	table := loadTable(t)
	eachLibrary(t, func(t *testing.T, lib *library) {
		probes := table.probes(lib.abi, func(c constant) bool { return lib.has(t, c) })
		if len(probes) < 150 {
			t.Fatalf("only %d values to compare", len(probes))
		}
		dir := t.TempDir()
		path := func(name string) string { return filepath.Join(dir, name) }
		write(t, path("theirs.c"), include+values("theirs", probes))
		write(t, path("ours.c"), ours(lib.abi)+values("ours", probes))
		write(t, path("main.c"), fmt.Sprintf(`#include <stdio.h>
enum { N = %d };
void ours(long long *), theirs(long long *);
int load(void);
int main(void) {
	static long long a[N], b[N];
	if (load()) return 2;
	ours(a), theirs(b);
	for (int i = 0; i < N; i++) printf("%%lld %%lld\n", a[i], b[i]);
	return 0;
}
`, len(probes)))
		command(t, lib.compiler, "-std=c11", "-I", headers(t), "-o", path("compare"),
			path("main.c"), path("ours.c"), path("theirs.c"), "-ldl")
		lines := strings.Split(strings.TrimSpace(command(t, path("compare"))), "\n")
		if len(lines) != len(probes) {
			t.Fatalf("%d lines for %d values", len(lines), len(probes))
		}
		for i, line := range lines {
			if got, want, _ := strings.Cut(line, " "); got != want {
				t.Errorf("%s is %s in abi_%s.h, and %s in the library's mpi.h", probes[i].name, got, abiNames[lib.abi], want)
			}
		}
		t.Logf("%s: MPI %s, ABI %s, major version %d: %d values", lib.compiler, lib.level, abiNames[lib.abi], lib.major, len(probes))
	})
}

// TestConstantsAgreeWithStandard compares abi_std.h with testdata/mpi_abi.tsv.
func TestConstantsAgreeWithStandard(t *testing.T) {
	compiler := need.Program(t, "gcc")
	table := loadTable(t)
	probes := table.probes(standard, func(c constant) bool { return c.value[standard] != "" })
	dir := t.TempDir()
	source, program := filepath.Join(dir, "print.c"), filepath.Join(dir, "print")
	write(t, source, ours(standard)+values("values", probes)+fmt.Sprintf(`#include <stdio.h>
int main(void) {
	static long long v[%d];
	values(v);
	for (unsigned i = 0; i < sizeof v / sizeof *v; i++) printf("%%lld\n", v[i]);
	return load();
}
`, len(probes)))
	command(t, compiler, "-std=c11", "-Wall", "-Werror", "-I", headers(t), "-o", program, source)
	want := reference(t)
	for i, got := range strings.Fields(command(t, program)) {
		switch w, ok := want[probes[i].name]; {
		case !ok:
			t.Errorf("testdata/mpi_abi.tsv does not have %s", probes[i].name)
		case strconv.FormatInt(w, 10) != got:
			t.Errorf("%s is %s in abi_std.h, and %d in the standard", probes[i].name, got, w)
		}
	}
}

// reference reads testdata/mpi_abi.tsv.
func reference(t *testing.T) map[string]int64 {
	t.Helper()
	want := make(map[string]int64)
	for line := range strings.Lines(readFile(t, "../testdata/mpi_abi.tsv")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, _ := strings.Cut(line, "\t")
		n, err := strconv.ParseInt(value, 0, 64)
		if _, twice := want[name]; err != nil || twice {
			t.Fatalf("testdata/mpi_abi.tsv: %q", line)
		}
		want[name] = n
	}
	return want
}
