package arch

import (
	"go/ast"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSeeds checks that the tests and scenarios which docs/seeds.md names are
// there, and that each of its rows names one, or says that there is none.
func TestSeeds(t *testing.T) {
	const document = "docs/seeds.md"
	tests, scenarios := make(map[string]bool), make(map[string]bool)
	for _, s := range allSources(t) {
		if s.test {
			for _, d := range s.syntax.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && isTest(f) {
					tests[s.path+":"+f.Name.Name] = true
				}
			}
		} else if s.folder == "cohorttest" {
			for _, name := range scenarioNames(s.syntax) {
				scenarios[name] = true
			}
		}
	}
	if !scenarios["p2p/types"] || !scenarios["Allreduce"] || scenarios["another root"] {
		t.Fatalf("found the scenarios %v: is the search right?", scenarios)
	}
	text := read(t, document)
	test, scenario := regexp.MustCompile("`([^`\\s]+_test\\.go:[^`\\s]+)`"), regexp.MustCompile("scenario\\s+`([^`]+)`")
	for _, m := range test.FindAllStringSubmatch(text, -1) {
		if !tests[m[1]] {
			t.Errorf("%s names %s, which does not exist", document, m[1])
		}
	}
	for _, m := range scenario.FindAllStringSubmatch(text, -1) {
		if !scenarios[m[1]] {
			t.Errorf("%s names the scenario %s, which does not exist", document, m[1])
		}
	}
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| it asks for |") {
			continue
		}
		rows++
		last := cells[len(cells)-1]
		if !test.MatchString(last) && !scenario.MatchString(last) && !strings.Contains(last, "lanned with ") && !strings.Contains(last, "not shown") {
			t.Errorf("%s: a row names no test, and does not say that there is none: %s", document, line)
		}
	}
	if rows < 50 {
		t.Errorf("%s: found only %d rows", document, rows)
	}
}

// isTest reports whether go test runs a function.
func isTest(f *ast.FuncDecl) bool {
	return strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" && f.Type.Params.NumFields() == 1
}

// scenarioNames returns the names of the scenarios in a file of cohorttest: values
// with a name and a body, and collectives: a name and whether there is a root, or a
// call of all or rooted with a name.
func scenarioNames(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && len(c.Args) > 0 {
			f, _ := c.Fun.(*ast.Ident)
			if text, ok := c.Args[0].(*ast.BasicLit); ok && f != nil && (f.Name == "all" || f.Name == "rooted") {
				name, _ := strconv.Unquote(text.Value)
				names = append(names, name)
			}
		}
		l, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		name, runs := "", false
		for i, e := range l.Elts {
			key := ""
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if id, ok := kv.Key.(*ast.Ident); ok {
					key = id.Name
				}
				e = kv.Value
			}
			if text, ok := e.(*ast.BasicLit); ok && (key == "name" || key == "" && i == 0) {
				name, _ = strconv.Unquote(text.Value)
			}
			id, ok := e.(*ast.Ident)
			runs = runs || key == "body" || key == "" && i == 1 && ok && (id.Name == "true" || id.Name == "false")
		}
		if name != "" && runs {
			names = append(names, name)
		}
		return true
	})
	return names
}
