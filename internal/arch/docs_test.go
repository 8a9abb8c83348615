package arch

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var variable = regexp.MustCompile(`\bCOHORT_[A-Z][A-Z0-9_]*[A-Z0-9]\b`)

// TestEnvironmentVariablesAreListed checks that docs/environment.md and CONTRIBUTING.md list the variables that the code reads or sets,
// and no others.
func TestEnvironmentVariablesAreListed(t *testing.T) {
	const document = "docs/environment.md, with CONTRIBUTING.md,"
	listed := make(map[string]bool)
	for _, v := range variable.FindAllString(read(t, "docs/environment.md")+read(t, "CONTRIBUTING.md"), -1) {
		listed[v] = true
	}
	used := make(map[string]string) // by whom
	for _, s := range allSources(t) {
		if s.test { // they make names up
			continue
		}
		for _, text := range literals(s) {
			name, _, _ := strings.Cut(text, "=") // a variable's name, or its setting
			if variable.FindString(name) == name && name != "" {
				used[name] = s.path
			}
		}
	}
	for _, p := range allFiles(t) {
		if strings.HasPrefix(p, "scripts/") {
			for _, v := range variable.FindAllString(read(t, p), -1) {
				used[v] = p
			}
		}
	}
	if used["COHORT_BACKEND"] == "" {
		t.Error("nobody uses COHORT_BACKEND: is the search right?")
	}
	for v, by := range used {
		if !listed[v] {
			t.Errorf("%s does not list %s, which %s uses", document, v, by)
		}
	}
	for v := range listed {
		if used[v] == "" {
			t.Errorf("%s lists %s, which nobody uses", document, v)
		}
	}
}

// literals returns a file's strings, without their quotes.
func literals(s *source) (texts []string) {
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			texts = append(texts, l.Value[1:len(l.Value)-1])
		}
		return true
	})
	return texts
}

// TestErrors checks that docs/errors.md says something of every sentinel, and of
// no others, and that the root package has them all.
func TestErrors(t *testing.T) {
	const document = "docs/errors.md"
	name := regexp.MustCompile(`\bErr[A-Z][A-Za-z]+\b`)
	sentinels := make(map[string]bool)
	exported := make(map[string]bool)
	for _, s := range allSources(t) {
		for _, d := range s.syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR || s.test {
				continue
			}
			for _, spec := range g.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					if name.MatchString(n.Name) && s.path == "backend/errors.go" {
						sentinels[n.Name] = true
					}
					if name.MatchString(n.Name) && s.folder == "" {
						exported[n.Name] = true
					}
				}
			}
		}
	}
	if !sentinels["ErrTruncate"] {
		t.Fatal("backend/errors.go has no ErrTruncate: is the search right?")
	}
	listed := make(map[string]bool)
	for _, n := range name.FindAllString(read(t, document), -1) {
		listed[n] = true
	}
	for n := range sentinels {
		if !listed[n] {
			t.Errorf("%s does not speak of %s", document, n)
		}
		if !exported[n] {
			t.Errorf("package cohort does not export %s", n)
		}
	}
	for n := range listed {
		if !sentinels[n] {
			t.Errorf("%s speaks of %s, which is not in backend/errors.go", document, n)
		}
	}
}

// TestLinks checks that links from one document to another, with their anchors, and documents that
// comments name, are there, and that the index of docs lists all of them.
func TestLinks(t *testing.T) {
	all := make(map[string]bool)
	for _, p := range allFiles(t) {
		for ; p != "."; p = path.Dir(p) {
			all[p] = true
		}
	}
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)`)
	heading := regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notInAnchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	code := regexp.MustCompile("(?s)\n```.*?\n```") // Go's T[int](x) looks like a link
	named := regexp.MustCompile(`\b(?:docs|sddp)/[A-Za-z0-9_/-]+\.(?:md|svg)\b`)
	links := 0
	for p := range all {
		switch path.Ext(p) {
		case ".md":
			for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, p), ""), -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				links++
				to := p
				if m[1] != "" {
					to = path.Join(path.Dir(p), m[1])
				}
				if !all[to] {
					t.Errorf("%s links to %s, which does not exist", p, to)
				} else if m[2] != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(read(t, to), -1), func(h []string) bool {
					return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") == m[2]
				}) {
					t.Errorf("%s links to %s#%s, and there is no such heading", p, to, m[2])
				}
			}
		case ".go":
			for _, to := range named.FindAllString(read(t, p), -1) {
				if !all[to] {
					t.Errorf("%s names %s, which does not exist", p, to)
				}
			}
		}
	}
	index := read(t, "docs/README.md")
	for p := range all {
		if in, ok := strings.CutPrefix(p, "docs/"); ok && path.Ext(p) == ".md" && in != "README.md" && !strings.Contains(index, "("+in+")") {
			t.Errorf("docs/README.md does not list %s", p)
		}
	}
	if links < 5 {
		t.Errorf("found only %d links", links)
	}
}

// TestDesignNamesPackages checks that docs/design.md has a row for every module, public package and internal package.
func TestDesignNamesPackages(t *testing.T) {
	text := read(t, "docs/design.md")
	for _, part := range slices.Concat(modules(t, root), slices.Collect(maps.Keys(users)), slices.Concat(layers...)) {
		name := strings.TrimPrefix(strings.TrimPrefix(part, module+"/"), "internal/")
		name, _, _ = strings.Cut(name, "/")
		if part != "" && part != module && !strings.Contains(text, "| `"+name) {
			t.Errorf("docs/design.md has no row for %s", part)
		}
	}
}
