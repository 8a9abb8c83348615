package arch

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// TestFuzzCorporaHaveTargets checks that every input kept under testdata/fuzz is one of a fuzz target of its package, in a folder
// of that name: go test passes over any other.
func TestFuzzCorporaHaveTargets(t *testing.T) {
	targets := make(map[string]bool) // by the folder of their inputs
	for _, s := range allSources(t) {
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && takesF(f) {
				targets[path.Join(s.folder, "testdata/fuzz", f.Name.Name)] = true
			}
		}
	}
	kept := 0
	for _, p := range allFiles(t) {
		if !strings.Contains("/"+p, "/testdata/fuzz/") {
			continue
		}
		kept++
		if !targets[path.Dir(p)] {
			t.Errorf("%s is not an input of any fuzz target: its package has no func %s(*testing.F)", p, path.Base(path.Dir(p)))
		}
	}
	if len(targets) < 30 || kept < 30 {
		t.Errorf("found %d fuzz targets and %d inputs: is the search right?", len(targets), kept)
	}
}

// takesF reports whether a function is a fuzz target.
func takesF(f *ast.FuncDecl) bool {
	if f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") || f.Type.Params.NumFields() != 1 {
		return false
	}
	star, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "F"
}
