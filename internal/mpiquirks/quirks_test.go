package mpiquirks

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

func TestQuirksOfKnownReleases(t *testing.T) {
	for _, c := range []struct {
		family, vendor, version string
		overruns                bool
		persistent              []backend.Coll // those of the ones below whose own form is not sound
		notInPlace              []backend.Coll // of those that may be in place
	}{
		{"mpich", "MPICH", "3.4.3", false, []backend.Coll{backend.Reduce}, []backend.Coll{backend.Reduce}},
		{"mpich", "MPICH", "4.0.2", false,
			[]backend.Coll{backend.Gather, backend.Allgather, backend.Scatter},
			[]backend.Coll{backend.Reduce}},
		{"mpich", "MPICH", "4.1.2", false, []backend.Coll{backend.Bcast, backend.Gather, backend.Allgather, backend.Scatter},
			[]backend.Coll{backend.Reduce}},
		{"mpich", "MPICH", "4.2.3", false, []backend.Coll{backend.Bcast, backend.Gather, backend.Scatter}, nil},
		{"mpich", "MPICH", "4.3.0", false, []backend.Coll{backend.Bcast, backend.Scatter}, nil},
		{"standard", "MPICH", "5.0.1", false, []backend.Coll{backend.Bcast, backend.Scatter}, nil},
		{"openmpi", "Open MPI", "4.0.7", true, nil, nil},
		{"openmpi", "Open MPI", "4.1.4", true, nil, nil},
		{"openmpi", "Open MPI", "5.0.10", true, nil, nil},
		{"standard", "Open MPI", "6.0.0", true, nil,
			[]backend.Coll{backend.Reduce, backend.Allreduce, backend.Allgather, backend.Allgatherv}},
		{"mpich", "Intel MPI", "2021.18", false,
			[]backend.Coll{backend.Bcast, backend.Reduce, backend.Gather, backend.Allgather, backend.Scatter},
			[]backend.Coll{backend.Reduce, backend.Allreduce, backend.Allgather, backend.Allgatherv}},
		{"mpich", "Cray MPICH", "8.1.25.17", false,
			[]backend.Coll{backend.Bcast, backend.Reduce, backend.Gather, backend.Allgather, backend.Scatter},
			[]backend.Coll{backend.Reduce, backend.Allreduce, backend.Allgather, backend.Allgatherv}},
		{"openmpi", "", "", true, nil,
			[]backend.Coll{backend.Reduce, backend.Allreduce, backend.Allgather, backend.Allgatherv}},
	} {
		q := quirksOf(c.family, c.vendor, c.version)
		who := c.vendor + " " + c.version
		if q.Has(QuirkOverrun) != c.overruns {
			t.Errorf("%s: overruns is %v", who, q.Has(QuirkOverrun))
		}
		for coll := backend.Barrier; coll <= backend.Exscan; coll++ {
			for _, form := range []backend.Form{backend.Blocking, backend.Nonblocking, backend.Persistent} {
				var want bool // whatever the other ranks do: on a root, and where a mix is known to be right
				switch coll {
				case backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv, backend.Reduce:
					want = !slices.Contains(c.notInPlace, coll)
				case backend.Allreduce, backend.Allgather, backend.Allgatherv:
					want = form == backend.Blocking && !slices.Contains(c.notInPlace, coll)
				}
				if q.InPlace(coll, form) != want {
					t.Errorf("%s: %v of form %d in place is %v", who, coll, form, !want)
				}
			}
			if c.vendor == "" { // every doubt counts, see TestUnknownLibraryHasEveryQuirk
				continue
			}
			if want := !slices.Contains(c.persistent, coll); q.Persistent(coll) != want {
				t.Errorf("%s: persistent %v is %v", who, coll, !want)
			}
		}
	}
}

// quirksOf returns the known defects of a library of an ABI family (mpich, openmpi or standard), a vendor and a version.
func quirksOf(family, vendor, version string) Quirks {
	r := ParseRelease(version)
	return QuirksIn(Of(families[family], vendor, r), r)
}

// families are those of the tests' tables, by the names that they have there.
var families = map[string]mpifind.Family{"mpich": mpifind.MPICH, "openmpi": mpifind.OpenMPI, "standard": mpifind.Standard}

// TestUnknownLibraryHasEveryQuirk checks that an unknown library has every defect of any known one.
func TestUnknownLibraryHasEveryQuirk(t *testing.T) {
	unknown := quirksOf("standard", "", "")
	for _, q := range quirkTable {
		if !unknown.Has(q.kind) {
			t.Errorf("an unknown library does not have quirk %d of %s", q.kind, q.vendor)
		}
	}
	for _, versions := range releases {
		for _, v := range versions {
			for _, vendor := range []string{"MPICH", "Open MPI", "Intel MPI", "Cray MPICH", "MVAPICH"} {
				for _, q := range quirksOf("standard", vendor, v) {
					if !unknown.Has(q.kind) {
						t.Errorf("%s %s has quirk %d, an unknown library not", vendor, v, q.kind)
					}
				}
			}
		}
	}
	if quirksOf("mpich", "", "").Has(QuirkOverrun) || quirksOf("mpich", "Cray MPICH", "8.1").Has(QuirkCUDACrash) {
		t.Error("a library of MPICH's family has a quirk of Open MPI")
	}
}

// TestQuirkRowsAreConsistent checks that the columns of every row fit its kind, and that docs/mpi-coverage.md has the row.
func TestQuirkRowsAreConsistent(t *testing.T) {
	page, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for i, q := range quirkTable {
		ofColls := q.kind == QuirkNoLong || q.kind == QuirkNoPersistent || q.kind == QuirkNoInPlace || q.kind == QuirkNoNative
		if q.kind == 0 || ofColls != (len(q.colls) > 0) {
			t.Errorf("row %d (%s): the collectives %v do not fit its kind", i, q.vendor, q.colls)
		}
		for _, v := range []string{q.from, q.before} {
			if v != "" && !ParseRelease(v).known {
				t.Errorf("row %d (%s): version %q", i, q.vendor, v)
			}
		}
		_, rest, found := strings.Cut(text, fmt.Sprintf("- **%s, %s**: ", q.vendor, span(q.from, q.before)))
		if !found {
			t.Errorf("row %d (%s) is not among those of %s in the order of the table", i, q.vendor, document)
			continue
		}
		text = rest
	}
}

var update = flag.Bool("update", false, "write the tables of docs/mpi-coverage.md")

const document = "../../docs/mpi-coverage.md"

// inDocument compares a table with the text between two marks of docs/mpi-coverage.md.
func inDocument(t *testing.T, mark, table string) {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	before, rest, ok1 := strings.Cut(string(b), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no marks for %s", document, mark)
	}
	if old == table {
		return
	}
	if !*update {
		t.Fatalf("the %s of %s are not those of the code: go test ./internal/mpiquirks -run %s -update", mark, document, t.Name())
	}
	if err := os.WriteFile(document, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// span formats a range of versions.
func span(from, before string) string {
	show := func(v string) string { return strings.TrimSuffix(v, "a1") }
	switch {
	case from == "" && before == "":
		return "all"
	case from == "":
		return "before " + show(before)
	case before == "":
		return "from " + show(from)
	}
	return show(from) + " to before " + show(before)
}

// TestErrorClassesAreDocumented checks the table of error classes. All others are ErrInternal.
func TestErrorClassesAreDocumented(t *testing.T) {
	abis := []libmpi.ABI{libmpi.MPICH, libmpi.OpenMPI, libmpi.Standard}
	type row struct {
		sentinel error
		numbers  [3]string
	}
	rows := make(map[string]*row)
	var order []string
	for i, abi := range abis {
		for class := 1; class < 200; class++ {
			name, sentinel := libmpi.ClassName(abi, class), libmpi.Sentinel(abi, class)
			if !strings.HasPrefix(name, "MPI") || sentinel == backend.ErrInternal {
				continue
			}
			name = strings.Replace(name, "MPIX_", "MPI_", 1) // before it was standard
			if rows[name] == nil {
				rows[name] = &row{sentinel: sentinel, numbers: [3]string{"-", "-", "-"}}
				order = append(order, name)
			}
			if rows[name].sentinel != sentinel {
				t.Errorf("%s is %v and %v", name, rows[name].sentinel, sentinel)
			}
			rows[name].numbers[i] = fmt.Sprint(class)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(backend.Code(rows[a].sentinel), backend.Code(rows[b].sentinel))
	})
	names := sentinelNames(t)
	var b strings.Builder
	b.WriteString("| cohort's error | MPI's class | MPICH | Open MPI | standard ABI |\n|---|---|---|---|---|\n")
	for _, name := range order {
		r := rows[name]
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", names[backend.Code(r.sentinel)], name, r.numbers[0], r.numbers[1], r.numbers[2])
	}
	inDocument(t, "errors", b.String())
}

// sentinelNames returns the names of backend's sentinels by code, from the source.
func sentinelNames(t *testing.T) map[uint8]string {
	t.Helper()
	b, err := os.ReadFile("../../backend/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[uint8]string)
	for _, m := range regexp.MustCompile(`(?m)^\t(Err\w+)\s+= errors\.New\("(.*)"\)`).FindAllStringSubmatch(string(b), -1) {
		for code := uint8(1); ; code++ {
			s := backend.Sentinel(code)
			if s.Error() == m[2] {
				names[code] = m[1]
				break
			}
			if s == backend.ErrInternal {
				t.Fatalf("%s is not among the sentinels", m[1])
			}
		}
	}
	return names
}
