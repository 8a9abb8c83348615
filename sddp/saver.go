package sddp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A checkpoint's name has its number of iterations. The folder keeps the two newest checkpoints: an older
// one is removed only after a new one is complete.
const (
	checkpointPrefix = "checkpoint-"
	checkpointSuffix = ".bin"
)

// checkpointName returns the name of the checkpoint after a number of iterations.
func checkpointName(iterations int) string {
	return fmt.Sprintf("%s%06d%s", checkpointPrefix, iterations, checkpointSuffix)
}

// checkpointsIn returns the iterations of the checkpoints in a folder, by their names, in descending
// order. A folder that does not exist has none.
func checkpointsIn(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint folder %s: %w", dir, plainError(err))
	}
	var out []int
	for _, e := range entries {
		digits := strings.TrimSuffix(strings.TrimPrefix(e.Name(), checkpointPrefix), checkpointSuffix)
		if n, err := strconv.Atoi(digits); err == nil && n > 0 && n <= maxIterations && e.Name() == checkpointName(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// saver writes the checkpoints of a training on rank 0. The other ranks have a nil saver, whose methods
// do nothing. A saver writes while the training continues: cuts in the pool do not change.
type saver struct {
	out   Output
	of    origin
	every int
	warn  func(error)

	saved   int        // iterations in the newest complete checkpoint; 0 if there is none
	asked   int        // iterations in the last write, successful or not
	writing chan error // result of the write in progress; nil if there is none
	failed  error      // result of the last write
}

// openSaver opens the folder of the checkpoints. It may have checkpoints only if the training resumes
// from them.
func openSaver(opt Options) (*saver, error) {
	s := &saver{out: Output{opt.Checkpoint}, every: opt.CheckpointEvery, warn: opt.Warn}
	if err := s.out.open("checkpoint"); err != nil {
		return nil, err
	}
	there, err := checkpointsIn(s.out.dir)
	if err != nil {
		return nil, err
	}
	if len(there) > 0 && !sameFolder(s.out.dir, opt.Resume) {
		return nil, fmt.Errorf("checkpoint folder %s: it has a training of %d iterations; resume that one or use another folder", s.out.dir, there[0])
	}
	return s, s.sweep()
}

// takeSaver takes over the folder of a lost rank. Problems with the folder appear at the next write.
// takeSaver reads the newest checkpoints to find one that is not damaged.
func takeSaver(opt Options, of origin) *saver {
	s := &saver{out: Output{opt.Checkpoint}, of: of, every: opt.CheckpointEvery, warn: opt.Warn}
	there, _ := checkpointsIn(opt.Checkpoint)
	for _, n := range there {
		var f start
		err := f.openFile(filepath.Join(opt.Checkpoint, checkpointName(n)))
		f.close()
		if err == nil {
			s.saved = n
			break
		}
	}
	return s
}

// sameFolder reports whether two paths name the same folder.
func sameFolder(a, b string) bool {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, two)
}

// sweep removes the temporary files of trainings that were killed.
func (s *saver) sweep() error {
	left, err := filepath.Glob(filepath.Join(escapeGlob(s.out.dir), "."+checkpointPrefix+"*.tmp"))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// escapeGlob returns a glob pattern that matches only the path.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// due starts to write a checkpoint if one is due.
func (s *saver) due(its []Iteration, pool *Pool) {
	if s != nil && len(its)%s.every == 0 {
		s.begin(its, pool)
	}
}

// begin starts to write a checkpoint, after the previous write has ended.
func (s *saver) begin(its []Iteration, pool *Pool) {
	s.wait()
	s.asked = len(its)
	its, pool, done := slices.Clone(its), pool.snapshot(), make(chan error, 1)
	s.writing = done
	go func() { done <- s.write(its, pool) }()
}

// wait waits for the write in progress and records its result.
func (s *saver) wait() {
	if s == nil || s.writing == nil {
		return
	}
	s.failed = <-s.writing
	s.writing = nil
	if s.failed == nil {
		s.saved = s.asked
	} else if s.warn != nil {
		s.warn(s.failed)
	}
}

// finish writes a checkpoint of all iterations unless there is one, and returns the error.
func (s *saver) finish(its []Iteration, pool *Pool) error {
	if s == nil {
		return nil
	}
	warn := s.warn
	s.warn = nil // the caller reports the error
	defer func() { s.warn = warn }()
	s.wait()
	if len(its) > s.saved {
		s.begin(its, pool)
		s.wait()
	}
	return s.failed
}

// write writes a checkpoint and removes all but it and the previous one.
func (s *saver) write(its []Iteration, pool *Pool) error {
	name := checkpointName(len(its))
	fail := func(err error) error {
		return fmt.Errorf("checkpoint %s: %w", filepath.Join(s.out.dir, name), plainError(err))
	}
	tmp, err := s.out.stageBy(name, func(w io.Writer) error { return encodeCheckpoint(w, s.of, its, pool) })
	if err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp, filepath.Join(s.out.dir, name)); err != nil {
		return errors.Join(fail(err), os.Remove(tmp))
	}
	if err := syncFolder(s.out.dir); err != nil {
		return fail(err)
	}
	there, err := checkpointsIn(s.out.dir)
	if err != nil {
		return err
	}
	for _, n := range there {
		if n == len(its) || n == s.saved {
			continue
		}
		if e := os.Remove(filepath.Join(s.out.dir, checkpointName(n))); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// syncFolder writes the entries of a folder to disk, where the system supports that.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
