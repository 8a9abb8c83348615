package sddp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort"
)

// Output is a folder that results are written to, by rank 0. A file in it is there as a whole or
// not at all, whenever the program ends: it is written under another name, which begins with a
// dot, and renamed when it is on disk.
type Output struct{ dir string }

// File is a file to write.
type File struct {
	Name string
	Data []byte
}

// OpenOutput makes the folder if it is not there and checks, before any work is done for it, that
// files can be written there. Its error is the same on all ranks.
//
// Collective: all ranks of world call it.
func OpenOutput(world *cohort.Comm, dir string) (*Output, error) {
	o := &Output{dir}
	_, err := newTeam(world).fromFirst("open output", func() ([]byte, error) { return nil, o.open("output") })
	return o, err
}

// open makes the folder if it is not there and checks that files can be written there.
func (o *Output) open(kind string) error {
	if err := os.MkdirAll(o.dir, 0o777); err != nil {
		return fmt.Errorf("%s folder %s: %w", kind, o.dir, plainError(err))
	}
	name, err := o.stage(File{"check", []byte("can files be written here?\n")})
	if err != nil {
		return fmt.Errorf("%s folder %s: files cannot be written there: %w", kind, o.dir, err)
	}
	return os.Remove(name)
}

// Write writes the files on rank 0: first all of them under names of their own, then, if that went
// well and ctx has not ended, each takes its place. Its error is the same on all ranks.
//
// Collective: all ranks of world call it; the files of rank 0 count.
func (o *Output) Write(ctx context.Context, world *cohort.Comm, files []File) error {
	_, err := newTeam(world).fromFirst("write output", func() ([]byte, error) { return nil, o.write(ctx, files) })
	return err
}

// write is Write on rank 0.
func (o *Output) write(ctx context.Context, files []File) (err error) {
	var staged []string
	defer func() {
		for _, name := range staged {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	for _, f := range files {
		name, err := o.stage(f)
		if err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(o.dir, f.Name), err)
		}
		staged = append(staged, name)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, f := range files {
		if err := os.Rename(staged[0], filepath.Join(o.dir, f.Name)); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(o.dir, f.Name), err)
		}
		staged = staged[1:]
	}
	return nil
}

// stage writes a file, to disk, under a name of its own and returns it.
func (o *Output) stage(f File) (name string, err error) {
	return o.stageBy(f.Name, func(w io.Writer) error {
		_, err := w.Write(f.Data)
		return err
	})
}

// stageBy is stage for a file that write writes.
func (o *Output) stageBy(file string, write func(io.Writer) error) (name string, err error) {
	tmp, err := os.CreateTemp(o.dir, "."+file+".*.tmp")
	if err != nil {
		return "", plainError(err)
	}
	err = write(tmp)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", errors.Join(plainError(err), os.Remove(tmp.Name()))
	}
	return tmp.Name(), nil
}
