package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrototypesAgreeWithLibraries lets each library's compiler compare the prototypes of functions.h with the library's
// own: a pointer of the table's type is made to point to the library's function.
func TestPrototypesAgreeWithLibraries(t *testing.T) {
	table := loadTable(t)
	eachLibrary(t, func(t *testing.T, lib *library) {
		var b strings.Builder
		b.WriteString(include)
		found := 0
		for _, f := range table.used() {
			name, other := "MPI_"+f.short(), f.other
			if f.name != name {
				other = f.name
			}
			switch {
			case lib.declared[name]:
				found++
			case other != "" && lib.declared[other]:
				found++
				fmt.Fprintf(&b, "#define %s %s\n", name, other)
			default:
				if f.use == "need" {
					t.Errorf("%s has no %s, which is needed", lib.compiler, name)
				}
				fmt.Fprintf(&b, "#define %s 0\n", name)
			}
		}
		if !lib.declared["MPI_Op_create_c"] {
			b.WriteString("#define MPI_User_function_c void\n")
		}
		b.WriteString(`#define COH_FN(name, result, params, use) result (*coh_##name) params = MPI_##name;
#define COH_FN2(name, other, result, params, use) COH_FN(name, result, params, use)
#include "functions.h"
`)
		if found < 80 {
			t.Fatalf("only %d functions to compare", found)
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, "prototypes.c"), b.String())
		command(t, lib.compiler, "-std=c11", "-Werror", "-Wno-error=deprecated-declarations", "-Wno-deprecated-declarations",
			"-I", headers(t), "-c", "-o", filepath.Join(dir, "prototypes.o"), filepath.Join(dir, "prototypes.c"))
		t.Logf("%s: %d of %d functions", lib.compiler, found, len(table.used()))
	})
}

// extension reports whether a name is that the table may leave out: a function of a library's own, a callback.
func extension(name string) bool {
	return strings.HasPrefix(name, "MPIX_") || strings.HasPrefix(name, "MPI_T_") ||
		strings.HasSuffix(name, "_function") || strings.HasSuffix(name, "_fn")
}

// absent are functions that a library has only from a version on, although it says that it is of the
// version of MPI that introduced them: Open MPI converts no statuses of mpi_f08 before 5.0.
var absent = [numABIs]map[string]int{
	ompi: {"MPI_Status_f082c": 5, "MPI_Status_c2f08": 5, "MPI_Status_f082f": 5, "MPI_Status_f2f08": 5},
}

// TestTableHasEveryFunction checks that the table has every function that a library declares, that it says rightly
// which version of MPI introduced each (as far as the libraries' versions tell), and which have a form with
// large counts.
func TestTableHasEveryFunction(t *testing.T) {
	table := loadTable(t)
	eachLibrary(t, func(t *testing.T, lib *library) {
		for name := range lib.declared {
			base := strings.TrimSuffix(name, "_c")
			if !functionName(name) || extension(name) || table.find(name) != nil {
				continue
			}
			if f := table.find(base); f == nil || f.large == "" {
				t.Errorf("%s declares %s, which the table does not have", lib.compiler, name)
			}
		}
		for _, c := range table.chapters {
			removed := strings.HasPrefix(c.title, "Removed")
			for _, f := range c.functions {
				switch there := lib.declared[f.name]; {
				case f.since == "X" || removed || absent[lib.abi][f.name] != 0 && lib.major < absent[lib.abi][f.name]:
				case f.since <= lib.level && !there:
					t.Errorf("%s is of MPI %s, and %s, which is of %s, does not declare it", f.name, f.since, lib.compiler, lib.level)
				case f.since > lib.level && there:
					t.Errorf("%s is of MPI %s, and %s, which is of %s, declares it", f.name, f.since, lib.compiler, lib.level)
				}
				since := max(f.since, "4.0")
				if since > lib.level || f.since == "X" || removed {
					continue
				}
				if there := lib.declared[f.name+"_c"]; there != (f.large != "") {
					t.Errorf("%s_c: %s declares it: %v; the table has it: %v", f.name, lib.compiler, there, f.large != "")
				}
			}
		}
	})
}

// functionName reports whether a name that is followed by a parenthesis is one of a function: MPI_ and
// then a capital letter and small ones. MPI_COMM_WORLD is none, and neither are types.
func functionName(name string) bool {
	_, rest, _ := strings.Cut(name, "_")
	return len(rest) > 1 && rest[1] >= 'a' && rest[1] <= 'z' && rest != "Aint" && rest != "Comm" && rest != "Fint"
}

// TestGeneratedFilesAreCurrent checks that the generated files are the ones that are generated now.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := loadTable(t).outputs()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if readFile(t, filepath.Join("..", name)) != want {
			t.Errorf("%s is not what mpi.table gives: go generate ./internal/libmpi", name)
		}
	}
}

// TestParseRejectsBadRows checks that rows that say nothing, or too much, are errors.
func TestParseRejectsBadRows(t *testing.T) {
	chapter := "= 3 Point to point\n"
	send := "1.0 need int MPI_Send(const void *buf, int count) +c | Send\n"
	good := filepath.Join(t.TempDir(), "good")
	write(t, good, "# comment\n\n"+chapter+send+"3.0 use MPI_Isend like MPI_Send or MPIX_Isend | Isend\n1.0 - MPI_Bsend (c) | why\n")
	table, err := parse(good)
	if err != nil {
		t.Fatal(err)
	}
	want := `COH_FN(Send, int, (const void *buf, int count), NEED)
COH_FN(Send_c, int, (const void *buf, MPI_Count count), USE)
COH_FN2(Isend, "MPIX_Isend", int, (const void *buf, int count, MPI_Request *request), USE)
`
	if text := table.functionsHeader(); !strings.HasSuffix(text, "\n"+want) {
		t.Errorf("got\n%s\nwant, at the end,\n%s", text, want)
	}
	for _, bad := range []string{
		send, // before the first chapter
		chapter + send + send,
		chapter + "1.0 need MPI_Send | no prototype",
		chapter + "1.0 need int MPI_Send(int x)",
		chapter + "1.0 sometimes int MPI_Send(int x) | how",
		chapter + "3.0 need MPI_Isend like MPI_Send | nothing above",
		chapter + "1.0 - int MPI_Send | a type without parameters",
		"= K Constants\nMPI_ROOT 1 2",
		"= E Classes\nMPI_ERR_ROOT 1 2 3",
		"= H Handles\nMPI_SUM Op 1 2",
		"= A Addresses\nMPI_BOTTOM 0 0 0",
	} {
		path := filepath.Join(t.TempDir(), "bad")
		write(t, path, bad)
		if _, err := parse(path); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
