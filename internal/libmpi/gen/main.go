package main

import (
	"fmt"
	"go/format"
	"os"
)

// outputs returns all generated files, by their names in the folder of package libmpi.
func (t *table) outputs() (map[string]string, error) {
	files := map[string]string{"functions.h": t.functionsHeader()}
	for abi, name := range abiNames {
		files["abi_"+name+".h"] = t.abiHeader(abi)
	}
	classes, err := format.Source([]byte(t.classesGo()))
	if err != nil {
		return nil, fmt.Errorf("classes.go: %v", err)
	}
	files["classes.go"] = string(classes)
	return files, nil
}

func run() error {
	t, err := parse("mpi.table")
	if err != nil {
		return err
	}
	files, err := t.outputs()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
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
