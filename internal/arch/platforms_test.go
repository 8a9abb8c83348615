package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// platform is a kind of machine that programs are built for, without cgo.
type platform struct{ goos, goarch string }

// others are the platforms that no test runs on, and why they are looked at: laptops, and clusters of
// Arm processors.
var others = []platform{{"darwin", "arm64"}, {"linux", "arm64"}}

// leftOut are the tags that leave something out of a program.
var leftOut = []string{"cohort_nompi", "cohort_notcp", "cohort_noshm", "cohort_noclp", "cohort_nocuda"}

// TestPlatforms checks that all packages and their tests have correct types on other platforms, and
// where something is left out. It compiles nothing: for another platform that would begin with the standard
// library, and take a minute each.
func TestPlatforms(t *testing.T) {
	for _, p := range others {
		t.Run(p.goos+"-"+p.goarch, func(t *testing.T) {
			t.Parallel()
			c := p.checker()
			if n := c.check(t, ""); n < 100 {
				t.Errorf("found only %d packages and tests of packages: is the search right?", n)
			}
			p.assemble(t)
		})
	}
	t.Run("left out", func(t *testing.T) {
		t.Parallel()
		c := platform{"linux", "amd64"}.checker()
		for _, tags := range append(leftOut, strings.Join(leftOut, ",")) {
			c.check(t, tags)
		}
	})
}

// TestPlatforms_FindsErrors has it look at a package that is right on one platform only.
func TestPlatforms_FindsErrors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.org/m\n\ngo 1.24\n",
		"both.go":        "package m\n\nimport \"strings\"\n\nfunc f() string { return strings.ToLower(only) }\n",
		"one_linux.go":   "package m\n\nconst only = \"x\"\n",
		"both_test.go":   "package m_test\n\nimport \"testing\"\n\nfunc TestF(*testing.T) {}\n",
		"tag.go":         "//go:build cohort_nompi\n\npackage m\n\nvar n int = f()\n",
		"sub/s.go":       "package sub\n\nimport _ \"example.org/m\"\n",
		"sub/s_arm64.go": "package sub\n\nvar word uintptr = 1 << 63\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		p        platform
		tags     string
		packages int
		says     string
	}{
		{platform{"linux", "arm64"}, "", 3, ""},
		{platform{"linux", "arm"}, "", 3, ""}, // no s_arm64.go
		{platform{"darwin", "arm64"}, "", 3, "undefined: only"},
		{platform{"linux", "arm64"}, "cohort_nompi", 3, "cannot use f()"},
	} {
		chk := c.p.checker()
		chk.dir = dir
		n, err := chk.packages(t, c.tags)
		if n != c.packages || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v %s: %d packages, %v; want %d, %q", c.p, c.tags, n, err, c.packages, c.says)
		}
	}
}

// checker looks at types for one platform. What is not the project's own it keeps, without the bodies
// of its functions.
type checker struct {
	platform
	dir   string // of the module
	files *token.FileSet
	kept  map[string]*types.Package // by import path
}

func (p platform) checker() *checker {
	return &checker{platform: p, dir: root, files: token.NewFileSet(), kept: make(map[string]*types.Package)}
}

// listed is what go list says of a package, or of the tests of one.
type listed struct {
	ImportPath, Name, Dir string
	GoFiles               []string
	ImportMap             map[string]string
	Module                *struct{ Main bool }
	Error                 *struct{ Err string }
}

func (c *checker) check(t *testing.T, tags string) (packages int) {
	packages, err := c.packages(t, tags)
	if err != nil {
		t.Errorf("%s/%s, tags %q: %v", c.goos, c.goarch, tags, err)
	}
	return packages
}

// packages checks all packages of the module and their tests with some tags, and returns how many they are.
func (c *checker) packages(t *testing.T, tags string) (n int, err error) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-test", "-tags", tags,
		"-json=ImportPath,Name,Dir,GoFiles,ImportMap,Module,Error", "./...")
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
		mine := l.Module != nil && l.Module.Main
		switch {
		case l.ImportPath == "unsafe", l.Name == "main" && strings.HasSuffix(l.ImportPath, ".test"), !mine && c.kept[l.ImportPath] != nil:
			continue
		case l.Error != nil && mine && len(l.GoFiles) > 0:
			problems = append(problems, errors.New(l.Error.Err))
		}
		pkg, errs := c.one(l, mine, own)
		if !mine {
			c.kept[l.ImportPath] = pkg
			continue
		}
		own[l.ImportPath] = pkg
		problems = append(problems, errs...)
		if len(l.GoFiles) > 0 {
			n++
		}
	}
	return n, errors.Join(problems...)
}

// one checks one package, whose imports have been.
func (c *checker) one(l listed, bodies bool, own map[string]*types.Package) (*types.Package, []error) {
	var errs []error
	var files []*ast.File
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(c.files, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, f)
	}
	path, _, _ := strings.Cut(l.ImportPath, " ") // "p [p.test]": p as its own tests see it
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
	pkg, _ := conf.Check(path, c.files, files, nil) // its error is the first of errs
	return pkg, errs
}

// importing is an importer.
type importing func(path string) (*types.Package, error)

func (f importing) Import(path string) (*types.Package, error) { return f(path) }

// assemble has Go's assembler read what is written for the processor.
func (p platform) assemble(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "internal", "*", "*_"+p.goarch+".s"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files for the assembler, %v: is the search right?", err)
	}
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		cmd := exec.CommandContext(t.Context(), "go", "tool", "asm", "-p", "p", "-I", filepath.Join(strings.TrimSpace(string(goroot)), "pkg", "include"),
			"-o", filepath.Join(t.TempDir(), "o"), f)
		cmd.Env = append(os.Environ(), "GOOS="+p.goos, "GOARCH="+p.goarch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
