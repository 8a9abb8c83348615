package main

import (
	"fmt"
	"go/format"
	"os"
)

// output is a generated file: its path from the folder of package libmpi, and what is in it.
type output struct{ path, text string }

// outputs returns all generated files.
func (t *table) outputs() ([]output, error) {
	var list []output
	for abi, name := range abiNames {
		list = append(list, output{"abi_" + name + ".h", t.abiHeader(abi)})
	}
	list = append(list, output{"functions.h", t.functionsHeader()})
	classes, err := format.Source([]byte(t.classesGo()))
	if err != nil {
		return nil, fmt.Errorf("classes.go: %v", err)
	}
	list = append(list, output{"classes.go", string(classes)})
	return append(list, output{"../../docs/mpi-coverage.md", t.coverage()}), nil
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
		if err := os.WriteFile(o.path, []byte(o.text), 0o644); err != nil {
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
