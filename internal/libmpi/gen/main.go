package main

import (
	"fmt"
	"go/format"
	"os"
	"strings"
)

// output is a generated file, or the part of one between <!-- mark --> and <!-- end of mark -->.
type output struct {
	path string // from the folder of package libmpi
	mark string // empty: the text is the whole file
	text string
}

// in returns the file's new text, given the old one.
func (o output) in(old string) (string, error) {
	if o.mark == "" {
		return o.text, nil
	}
	begin, end := "<!-- "+o.mark+" -->\n", "<!-- end of "+o.mark+" -->\n"
	before, rest, ok1 := strings.Cut(old, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("%s has no marks for %s", o.path, o.mark)
	}
	return before + begin + o.text + end + after, nil
}

// outputs returns all generated files.
func (t *table) outputs() ([]output, error) {
	var list []output
	for abi, name := range abiNames {
		list = append(list, output{path: "abi_" + name + ".h", text: t.abiHeader(abi)})
	}
	list = append(list, output{path: "functions.h", text: t.functionsHeader()})
	classes, err := format.Source([]byte(t.classesGo()))
	if err != nil {
		return nil, fmt.Errorf("classes.go: %v", err)
	}
	list = append(list, output{path: "classes.go", text: string(classes)})
	return append(list, output{path: "../../docs/mpi-coverage.md", mark: "functions", text: t.coverage()}), nil
}

func run() error {
	t, err := parse("mpi.table")
	if err != nil {
		return err
	}
	list, err := t.outputs()
	if err != nil {
		return err
	}
	for _, o := range list {
		old, err := os.ReadFile(o.path)
		if err != nil && o.mark != "" {
			return err
		}
		text, err := o.in(string(old))
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
