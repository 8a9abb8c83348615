package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// platform is an operating system and an architecture that programs are built for, without cgo.
type platform struct{ goos, goarch string }

// platforms reads the list of those that every package compiles for. scripts/portable reads it too.
func platforms(t *testing.T) (all []platform) {
	t.Helper()
	text, err := os.ReadFile("testdata/platforms")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		goos, goarch, ok := strings.Cut(strings.TrimSpace(line), "/")
		if !ok {
			t.Fatalf("testdata/platforms: %q is no GOOS/GOARCH", line)
		}
		all = append(all, platform{goos, goarch})
	}
	return all
}

// sampled are the platforms that -short checks: what is not Linux, and another processor. The tags are checked with
// integers of 32 bits.
var sampled = []platform{{"darwin", "arm64"}}

// excludingTags are the build tags that exclude something from a program.
var excludingTags = []string{"cohort_nompi", "cohort_notcp", "cohort_noshm", "cohort_noclp", "cohort_nocuda"}

// TestPackagesCompileForEveryPlatform checks that all packages and their tests compile for every platform, and without what
// the tags leave out. It checks types and runs the assembler, which takes seconds; the compiler takes minutes, as it
// begins with the standard library.
func TestPackagesCompileForEveryPlatform(t *testing.T) {
	debug.SetGCPercent(400) // the syntax trees of all packages stay
	all := platforms(t)
	for _, p := range sampled {
		if !slices.Contains(all, p) {
			t.Errorf("%v is not in testdata/platforms", p)
		}
	}
	for _, p := range all {
		t.Run(p.goos+"-"+p.goarch, func(t *testing.T) {
			if testing.Short() && !slices.Contains(sampled, p) {
				t.Skip("left out with -short: that all packages compile for " + p.goos + "/" + p.goarch + "; make test-all runs it")
			}
			t.Parallel()
			if n := p.checker(root).check(t, ""); n < 100 {
				t.Errorf("found only %d packages and tests of packages: is the search right?", n)
			}
		})
	}
	t.Run("tags", func(t *testing.T) {
		t.Parallel()
		c := platform{"linux", "386"}.checker(root)
		for _, tag := range excludingTags {
			if !testing.Short() {
				c.check(t, tag)
			}
		}
		c.check(t, strings.Join(excludingTags, ","))
	})
}

// TestPlatformsFindsErrors checks a module that compiles for one platform only.
func TestPlatformsFindsErrors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.org/m\n\ngo 1.24\n",
		"both.go":          "package m\n\nimport \"strings\"\n\nfunc f() string { return strings.ToLower(only) }\n",
		"one_linux.go":     "package m\n\nconst only = \"x\"\n",
		"both_test.go":     "package m_test\n\nimport \"testing\"\n\nfunc TestF(*testing.T) {}\n",
		"tag.go":           "//go:build cohort_nompi\n\npackage m\n\nvar n int = f()\n",
		"inside_test.go":   "package m\n\nconst least = -1 << 40\n\nvar m = []int{least}\n",
		"sub/s.go":         "package sub\n\nimport _ \"example.org/m\"\n",
		"sub/s_arm64.go":   "package sub\n\nvar word uintptr = 1 << 63\n\nfunc there()\n",
		"sub/s_arm64.s":    "TEXT ·there(SB), 4, $0-0\n\tRET\n",
		"sub/s_s390x.go":   "package sub\n\nfunc absent()\n",
		"sub/s_riscv64.go": "package sub\n\nfunc wrong()\n",
		"sub/s_riscv64.s":  "TEXT ·wrong(SB), 4, $0-0\n\tVZEROUPPER\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		p     platform
		tags  string
		finds string
	}{
		{platform{"linux", "amd64"}, "", ""},
		{platform{"linux", "arm64"}, "", ""},
		{platform{"linux", "arm"}, "", "cannot use least"},
		{platform{"linux", "s390x"}, "", "absent has no body"},
		{platform{"linux", "riscv64"}, "", "VZEROUPPER"},
		{platform{"darwin", "arm64"}, "", "undefined: only"},
		{platform{"linux", "amd64"}, "cohort_nompi", "cannot use f()"},
	} {
		n, err := c.p.checker(dir).packages(t, c.tags)
		if n != 4 || (err == nil) != (c.finds == "") || err != nil && !strings.Contains(err.Error(), c.finds) {
			t.Errorf("%v %s: %d packages, %v; want 4, %q", c.p, c.tags, n, err, c.finds)
		}
	}
}

// checker checks the packages of a module, or of those that are tied by a go.work file, for one platform.
type checker struct {
	platform
	dir  string                    // of the module, or of go.work
	kept map[string]*types.Package // of other modules, without function bodies, by import path
}

func (p platform) checker(dir string) *checker {
	return &checker{platform: p, dir: dir, kept: make(map[string]*types.Package)}
}

// listed is what go list reports of a package, or of a package compiled for a test.
type listed struct {
	ImportPath, Name, Dir, ForTest string
	GoFiles, SFiles                []string
	ImportMap                      map[string]string
	Module                         *struct{ Main bool }
	Error                          *struct{ Err string }
}

// own reports whether the package is of a module that is checked.
func (l *listed) own() bool { return l.Module != nil && l.Module.Main }

// path returns the import path without the test that the package is compiled for: "p" of "p [p.test]".
func (l *listed) path() string {
	path, _, _ := strings.Cut(l.ImportPath, " ")
	return path
}

func (c *checker) check(t *testing.T, tags string) (packages int) {
	packages, err := c.packages(t, tags)
	if err != nil {
		t.Errorf("GOOS=%s GOARCH=%s CGO_ENABLED=0 go vet -tags=%s ./...: %v", c.goos, c.goarch, tags, err)
	}
	return packages
}

// packages checks all packages of the modules and their tests with some tags, and returns how many there are.
func (c *checker) packages(t *testing.T, tags string) (n int, err error) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-test", "-tags", tags,
		"-json=ImportPath,Name,Dir,ForTest,GoFiles,SFiles,ImportMap,Module,Error")
	for _, module := range modules(t, c.dir) {
		cmd.Args = append(cmd.Args, module+"/...")
	}
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GOOS="+c.goos, "GOARCH="+c.goarch, "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	own := make(map[string]*types.Package)
	var problems []error
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return 0, err
		}
		switch {
		case l.ImportPath == "unsafe", l.Name == "main" && strings.HasSuffix(l.ImportPath, ".test"), !l.own() && c.kept[l.ImportPath] != nil:
			continue
		case l.Error != nil && l.own() && len(l.GoFiles) > 0:
			problems = append(problems, errors.New(l.Error.Err))
		}
		pkg, errs := c.one(&l, own)
		if !l.own() {
			c.kept[l.ImportPath] = pkg
			continue
		}
		own[l.ImportPath] = pkg
		problems = append(problems, errs...)
		if len(l.GoFiles) > 0 && (l.ForTest == "" || l.tested()) {
			n++
			problems = append(problems, c.assemble(t, &l)...)
		}
	}
	return n, errors.Join(problems...)
}

// tested reports whether the package has the test files of the test that it is compiled for.
func (l *listed) tested() bool { return l.path() == l.ForTest || l.path() == l.ForTest+"_test" }

// one checks the types of a package whose imports have been checked. It skips the bodies of functions that are
// checked elsewhere: of another module's, and of those that are compiled again as they import a tested package.
func (c *checker) one(l *listed, own map[string]*types.Package) (*types.Package, []error) {
	bodies := l.own() && (l.ForTest == "" || l.tested())
	var errs []error
	var files []*ast.File
	for _, name := range l.GoFiles {
		f, err := parse(filepath.Join(l.Dir, name), l.own())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, f)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && bodies && fn.Body == nil && len(l.SFiles) == 0 {
				errs = append(errs, fmt.Errorf("%v: %s has no body, and the package no assembly", fileSet.Position(fn.Pos()), fn.Name))
			}
		}
	}
	conf := types.Config{
		Importer: importing(func(path string) (*types.Package, error) {
			if path == "unsafe" {
				return types.Unsafe, nil
			}
			if to := l.ImportMap[path]; to != "" {
				path = to
			}
			for _, m := range []map[string]*types.Package{own, c.kept} {
				if p := m[path]; p != nil {
					return p, nil
				}
			}
			return nil, errors.New("there is no package " + path)
		}),
		Sizes:            types.SizesFor("gc", c.goarch),
		IgnoreFuncBodies: !bodies,
		Error:            func(err error) { errs = append(errs, err) },
	}
	pkg, _ := conf.Check(l.path(), fileSet, files, nil) // its error is the first of errs
	return pkg, errs
}

// importing is an importer.
type importing func(path string) (*types.Package, error)

func (f importing) Import(path string) (*types.Package, error) { return f(path) }

// The checkers of all platforms parse each file once. Nothing changes a syntax tree afterwards.
var (
	fileSet = token.NewFileSet()
	parsed  sync.Map // from file names to functions that return the tree
)

// parse returns a file's syntax tree. Without details it lacks what no other package can see: the bodies of
// functions and the elements of tables.
func parse(name string, details bool) (*ast.File, error) {
	once, _ := parsed.LoadOrStore(name, sync.OnceValues(func() (*ast.File, error) {
		f, err := parser.ParseFile(fileSet, name, nil, parser.SkipObjectResolution)
		if err == nil && !details {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					d.Body = nil
				case *ast.GenDecl:
					for _, s := range d.Specs {
						if v, ok := s.(*ast.ValueSpec); ok {
							empty(v.Values)
						}
					}
				}
			}
		}
		return f, err
	}))
	return once.(func() (*ast.File, error))()
}

// empty removes the elements of tables, except where they give an array its length.
func empty(values []ast.Expr) {
	for _, v := range values {
		if table, ok := v.(*ast.CompositeLit); ok {
			if array, ok := table.Type.(*ast.ArrayType); ok {
				if _, counted := array.Len.(*ast.Ellipsis); counted {
					continue
				}
			}
			table.Elts = nil
		}
	}
}

// assemble runs Go's assembler on the package's files for the platform.
func (c *checker) assemble(t *testing.T, l *listed) (errs []error) {
	if len(l.SFiles) == 0 || l.ForTest != "" {
		return nil
	}
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		return []error{err}
	}
	include := filepath.Join(strings.TrimSpace(string(goroot)), "pkg", "include")
	for _, f := range l.SFiles {
		cmd := exec.CommandContext(t.Context(), "go", "tool", "asm", "-p", "p", "-I", include,
			"-o", filepath.Join(t.TempDir(), "o"), filepath.Join(l.Dir, f))
		cmd.Env = append(os.Environ(), "GOOS="+c.goos, "GOARCH="+c.goarch)
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, out))
		}
	}
	return errs
}
