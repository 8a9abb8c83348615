package flight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Keep copies the files of a job's ranks from one folder to another, and removes those of an earlier job there.
// If there are none to copy, it changes nothing. If not all can be copied, none is kept: an incomplete set would show
// that the other ranks left no record.
func Keep(from, to string) error {
	names, err := files(from)
	if err != nil || len(names) == 0 {
		return err
	}
	err = Clear(to)
	for _, name := range names {
		if err == nil {
			var b []byte
			if b, err = readFile(filepath.Join(from, name)); err == nil {
				err = WriteFile(filepath.Join(to, name), b)
			}
		}
	}
	if err != nil {
		_ = Clear(to)
	}
	return err
}

// Clear removes the files of a job's ranks from a folder.
func Clear(dir string) error {
	names, err := files(dir)
	for _, name := range names {
		if e := os.Remove(filepath.Join(dir, name)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// files returns the names of the files that a job's ranks have left in a folder.
func files(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		var rank int
		if _, err := fmt.Sscanf(e.Name(), "rank-%d.", &rank); err == nil && e.Name() == FileName(rank) {
			names = append(names, e.Name())
		}
	}
	return names, err
}
