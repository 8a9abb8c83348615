package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// TestOperationsHaveExamples checks that the examples of the root package call every exported function and method of it,
// and have output. It goes by names: a call of one type's Close counts for all. Functions beside an example help it.
func TestOperationsHaveExamples(t *testing.T) {
	operations := make(map[string]string) // by name: with the type, for the error
	shown := make(map[string]bool)
	for _, s := range allSources(t) {
		if s.folder != "" {
			continue
		}
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
			case s.test && strings.HasPrefix(s.path, "example_"):
				if strings.HasPrefix(f.Name.Name, "Example") && !hasOutput(s.syntax, f) {
					t.Errorf("%s has no output to compare", f.Name.Name)
				}
				ast.Inspect(f.Body, func(n ast.Node) bool {
					if sel, ok := n.(*ast.SelectorExpr); ok {
						shown[sel.Sel.Name] = true
					}
					return true
				})
			case !s.test && f.Name.IsExported() && !slices.Contains([]string{"Error", "String", "Unwrap"}, f.Name.Name):
				if of, exported := receiver(f); exported {
					operations[f.Name.Name] = of + f.Name.Name
				}
			}
		}
	}
	for _, name := range []string{"Allreduce", "Iallreduce", "Close", "LockAll", "Union"} {
		if operations[name] == "" {
			t.Fatalf("%s is not among the operations %v: is the search right?", name, operations)
		}
	}
	for name, full := range operations {
		if !shown[name] {
			t.Errorf("no Example calls %s", full)
		}
	}
}

// receiver returns a method's type and a dot, "" for a function, and whether the type is exported.
func receiver(f *ast.FuncDecl) (string, bool) {
	if f.Recv == nil {
		return "", true
	}
	x := f.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.Ident:
			return y.Name + ".", y.IsExported()
		default:
			return "", false
		}
	}
}

// hasOutput reports whether the example's body ends with what it prints.
func hasOutput(file *ast.File, f *ast.FuncDecl) bool {
	for _, c := range file.Comments {
		text := strings.ToLower(c.Text())
		if c.Pos() > f.Body.Pos() && c.End() < f.Body.End() &&
			(strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")) {
			return true
		}
	}
	return false
}
