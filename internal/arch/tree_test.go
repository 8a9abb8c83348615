package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/cohort-hpc/cohort" // of the library; go.work lists the others, whose paths begin with it
	root   = "../.."
)

// modules returns the import paths of the modules that the go command works on in a folder.
func modules(t *testing.T, folder string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m")
	list.Dir = folder
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// source is a Go file of the repository, of whatever platform and build tag.
type source struct {
	path    string // from the root, with slashes
	folder  string // of the package, "" for the root
	test    bool
	lines   int
	syntax  *ast.File
	imports []string
}

// files returns the paths of the repository's files: those that git knows or
// would add, all where there is no git.
var files = sync.OnceValues(func() ([]string, error) {
	git := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	if out, err := git.Output(); err == nil {
		list := strings.Fields(string(out))
		return slices.DeleteFunc(list, func(p string) bool { // deleted, and not yet so for git
			_, err := os.Stat(filepath.Join(root, p))
			return err != nil
		}), nil
	}
	var list []string
	err := fs.WalkDir(os.DirFS(root), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (p == ".git" || p == "bin" || p == "out") {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			list = append(list, p)
		}
		return err
	})
	return list, err
})

var sources = sync.OnceValues(func() ([]*source, error) {
	list, err := files()
	if err != nil {
		return nil, err
	}
	var all []*source
	for _, p := range list {
		if path.Ext(p) != ".go" || strings.Contains(p, "testdata/") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.Join(root, p), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s := &source{
			path: p, folder: path.Dir(p), test: strings.HasSuffix(p, "_test.go"),
			lines: set.File(f.FileStart).LineCount(), syntax: f,
		}
		if s.folder == "." {
			s.folder = ""
		}
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return nil, err
			}
			s.imports = append(s.imports, name)
		}
		all = append(all, s)
	}
	return all, nil
})

func allSources(t *testing.T) []*source {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("found only %d Go files", len(all))
	}
	return all
}

func allFiles(t *testing.T) []string {
	t.Helper()
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, p string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, p))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// within reports whether a folder is one of those given; "x/*" is every folder
// below x.
func within(folder string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if above, ok := strings.CutSuffix(p, "/*"); ok {
			return strings.HasPrefix(folder, above+"/")
		}
		return folder == p
	})
}
