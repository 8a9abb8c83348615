package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestUnsafeIsInFewPackages checks that unsafe stays where memory is looked at as something
// else; tests may ask for sizes and offsets.
func TestUnsafeIsInFewPackages(t *testing.T) {
	for _, s := range allSources(t) {
		if !s.test && slices.Contains(s.imports, "unsafe") &&
			!within(s.folder, "internal/view", "internal/shmem", "internal/libmpi", "internal/accel/cuda") {
			t.Errorf("%s imports unsafe", s.path)
		}
	}
}

// TestCgoIsInOnePackage checks that C is called in one place of the library only, which a build without a C
// compiler leaves out. An example of a C library is a module apart.
func TestCgoIsInOnePackage(t *testing.T) {
	n := 0
	for _, s := range allSources(t) {
		if slices.Contains(s.imports, "C") {
			n++
			if s.folder != "internal/libmpi" && s.folder != "examples/hdf5" || s.test {
				t.Errorf("%s imports C", s.path)
			}
		}
	}
	if n == 0 {
		t.Error("nothing imports C: is the search right?")
	}
}

// TestPackagesHaveOneComment checks that every package has one comment, in doc.go or in the
// file that is named after the package.
func TestPackagesHaveOneComment(t *testing.T) {
	where, name := make(map[string][]string), make(map[string]string)
	for _, s := range allSources(t) {
		if s.test {
			continue
		}
		docs := where[s.folder]
		if s.syntax.Doc != nil {
			docs = append(docs, filepath.Base(s.path))
		}
		where[s.folder], name[s.folder] = docs, s.syntax.Name.Name
	}
	for folder, docs := range where {
		if len(docs) != 1 || docs[0] != "doc.go" && docs[0] != name[folder]+".go" {
			t.Errorf("package %q: package comments in %v, want one, in doc.go or %s.go", folder, docs, name[folder])
		}
	}
}

// long are the files that may have more than 500 lines, and why each is one
// thing.
var long = map[string]string{}

// TestFileLength checks that no file grows into several.
func TestFileLength(t *testing.T) {
	const limit = 500
	for _, s := range allSources(t) {
		_, listed := long[s.path]
		switch {
		case s.lines > limit && !listed:
			t.Errorf("%s has %d lines, more than %d: is it one thing? If so, list it in long", s.path, s.lines, limit)
		case s.lines <= limit && listed:
			t.Errorf("%s has %d lines and needs no place in long any more", s.path, s.lines)
		}
	}
}

// TestExportedNamesHaveComments checks that every exported name of a package has a comment. What stands in for other files when
// protocols are explored is documented there.
func TestExportedNamesHaveComments(t *testing.T) {
	for _, s := range allSources(t) {
		if s.test || s.syntax.Name.Name == "main" || s.path == "internal/word/explored.go" {
			continue
		}
		for _, d := range s.syntax.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s has no comment", s.path, name)
			}
		}
	}
}

// TestOperationCommentsEndAlike checks that the comment of every operation of the root package says who calls it, and its
// errors, and of every collective one what a deadline does. The nonblocking and persistent forms refer to the
// blocking one.
func TestOperationCommentsEndAlike(t *testing.T) {
	who := regexp.MustCompile(`(?m)^(Collective|Not collective)[.:,; ]`)
	errs := regexp.MustCompile(`(?m)^(Errors[:,]|(Collective|Not collective); errors[:,])`)
	deadline := regexp.MustCompile(`(?m)^(Deadline:|Errors, deadline: |Not collective|Collective; errors, deadline: as for )`)
	n := 0
	for _, s := range allSources(t) {
		if s.folder != "" || s.test {
			continue
		}
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !isOperation(f) || strings.Contains(f.Doc.Text(), "form of [") {
				continue
			}
			n++
			for what, pattern := range map[string]*regexp.Regexp{"who calls it": who, "its errors": errs, "what a deadline does": deadline} {
				if !pattern.MatchString(f.Doc.Text()) {
					t.Errorf("%s: the comment of %s does not say %s", s.path, f.Name.Name, what)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("found only %d operations: is the search right?", n)
	}
}

// isOperation reports whether a function is exported and returns an error, other than the one that a value has.
func isOperation(f *ast.FuncDecl) bool {
	if !f.Name.IsExported() || f.Recv != nil && !exportedReceiver(f.Recv.List[0].Type) || f.Name.Name == "Err" || f.Type.Results == nil {
		return false
	}
	last, ok := f.Type.Results.List[len(f.Type.Results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}

// undocumented returns the exported names of a declaration that have no
// comment. One for a group, or at the end of the line, will do for constants and
// variables, and one for a group for aliases; methods of unexported types need none.
func undocumented(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || exportedReceiver(d.Recv.List[0].Type)) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && spec.Doc == nil && (d.Doc == nil || len(d.Specs) > 1 && !spec.Assign.IsValid()) {
					names = append(names, spec.Name.Name)
				}
			case *ast.ValueSpec:
				if d.Doc != nil || spec.Doc != nil || spec.Comment != nil || d.Tok == token.IMPORT {
					continue
				}
				for _, n := range spec.Names {
					if n.IsExported() {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

func exportedReceiver(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return exportedReceiver(e.X)
	case *ast.IndexExpr:
		return exportedReceiver(e.X)
	case *ast.IndexListExpr:
		return exportedReceiver(e.X)
	case *ast.Ident:
		return e.IsExported()
	}
	return false
}

// TestNoFileNamesItsMachine checks that no file speaks of the machine it was written on.
func TestNoFileNamesItsMachine(t *testing.T) {
	machine := regexp.MustCompile(`/(?:work|root|farm|home|Users)/\w`)
	for _, p := range allFiles(t) {
		b, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(b), "\n") {
			if m := machine.FindString(line); m != "" {
				t.Errorf("%s:%d: a path of a machine: %s", p, n+1, strings.TrimSpace(line))
			}
		}
	}
}

// TestSpellingIsAmerican checks that words with an American and a British spelling have the American one, as MPI's
// names have.
func TestSpellingIsAmerican(t *testing.T) {
	british := regexp.MustCompile(`(?i)neighbo[u]r|colo[u]r|behavio[u]r|(?:minim|maxim|optim|initial|final|general|normal|organ|recogn|serial|synchron|util)is(?:e|ed|es|ing|ation)\b`)
	for _, p := range allFiles(t) {
		for n, line := range strings.Split(read(t, p), "\n") {
			if word := british.FindString(line); word != "" {
				t.Errorf("%s:%d: %s is British spelling", p, n+1, word)
			}
		}
	}
}

// TestBackendsNameFilesAlike checks that what is alike in the backends is found under the
// same name in each.
func TestBackendsNameFilesAlike(t *testing.T) {
	has := make(map[string]bool)
	backends := make(map[string]bool)
	for _, s := range allSources(t) {
		if within(s.folder, "backend/*") && !strings.HasSuffix(s.folder, "/jobtest") {
			has[s.path] = true
			backends[s.folder] = true
		}
	}
	for folder := range backends {
		names := []string{"doc.go", "open.go", "comm.go", "p2p.go", "probe.go", "wait.go", "collective.go", "fail.go"}
		if folder == "backend/shm" || folder == "backend/tcp" { // internal/engine has the rest
			names = []string{"doc.go", "open.go", "start.go", "sleeper.go"}
		}
		for _, name := range names {
			if !has[folder+"/"+name] {
				t.Errorf("%s has no %s", folder, name)
			}
		}
	}
	if !backends["backend/local"] || !backends["backend/shm"] || !backends["backend/mpi"] {
		t.Errorf("found backends %v, want local, shm and mpi among them", backends)
	}
}
