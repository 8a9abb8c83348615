package arch

import (
	"go/ast"
	"strings"
	"testing"
)

// TestOperationExamples checks that every operation has an example with its
// output. One example stands for an operation's three forms.
func TestOperationExamples(t *testing.T) {
	operations := make(map[string]bool)
	shown := make(map[string]bool)
	for _, s := range allSources(t) {
		if s.folder != "" {
			continue
		}
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			switch {
			case s.test && strings.HasPrefix(f.Name.Name, "Example"):
				shown[strings.TrimPrefix(f.Name.Name, "Example")] = hasOutput(s.syntax, f)
			case !s.test && f.Name.IsExported() && f.Recv == nil && takesComm(f):
				operations[f.Name.Name] = true
			}
		}
	}
	if !operations["Allreduce"] || !operations["Iallreduce"] {
		t.Fatalf("found the operations %v: is the search right?", operations)
	}
	for name := range operations {
		base := strings.TrimSuffix(name, "Init")
		if rest, ok := strings.CutPrefix(base, "I"); ok {
			base = strings.ToUpper(rest[:1]) + rest[1:]
		}
		if output, ok := shown[base]; !ok && !shown[name] {
			t.Errorf("%s has no Example%s", name, base)
		} else if ok && !output {
			t.Errorf("Example%s has no output to compare", base)
		}
	}
}

// takesComm reports whether a function's first parameter is a *Comm.
func takesComm(f *ast.FuncDecl) bool {
	if f.Type.Params.NumFields() == 0 {
		return false
	}
	star, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	name, ok := star.X.(*ast.Ident)
	return ok && name.Name == "Comm"
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
