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

// Output is a folder to which rank 0 writes results. A file appears there complete or not at all, even if
// the program is killed: it is written under a name that begins with a dot and renamed once it is on
// disk.
type Output struct{ dir string }

// File is a file to write.
type File struct {
	Name string
	Data []byte
}

// OpenOutput creates the folder if necessary and checks that files can be written to it.
//
// Collective: all ranks of world call it. Only rank 0 uses dir.
//
// Errors: those of the file system, on all ranks.
func OpenOutput(world *cohort.Comm, dir string) (*Output, error) {
	o := &Output{dir}
	_, err := newTeam(world).fromFirst("open output", func() ([]byte, error) { return nil, o.open("output") })
	return o, err
}

// open creates the folder if necessary and checks that files can be written to it.
func (o *Output) open(kind string) error {
	if err := os.MkdirAll(o.dir, 0o777); err != nil {
		return fmt.Errorf("%s folder %s: %w", kind, o.dir, plainError(err))
	}
	name, err := o.stage(File{"check", []byte("can files be written here?\n")})
	if err != nil {
		return fmt.Errorf("%s folder %s: cannot write files there: %w", kind, o.dir, err)
	}
	return os.Remove(name)
}

// Write writes the files of rank 0. It writes all of them under temporary names first. If that succeeds
// and ctx has not ended, it renames them.
//
// Collective: all ranks of world call it. Only rank 0 uses files.
//
// Errors: those of the file system and the cause of ctx, on all ranks.
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

// stage writes a file to disk under a temporary name and returns the name.
func (o *Output) stage(f File) (name string, err error) {
	return o.stageBy(f.Name, func(w io.Writer) error {
		_, err := w.Write(f.Data)
		return err
	})
}

// stageBy is stage with the content written by write.
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
