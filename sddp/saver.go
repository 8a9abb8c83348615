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

// Checkpoints are named by the iterations they have. A new one is there before the one before the last is
// removed: whenever the program ends there are two, once there have been, and the newest is whole.
const (
	checkpointPrefix = "checkpoint-"
	checkpointSuffix = ".bin"
)

// checkpointName returns the name of the checkpoint after so many iterations.
func checkpointName(iterations int) string {
	return fmt.Sprintf("%s%06d%s", checkpointPrefix, iterations, checkpointSuffix)
}

// checkpointsIn returns the iterations of the checkpoints of a folder by their names, the most first. A
// folder that is not there has none.
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

// saver writes the checkpoints of a training, on rank 0 alone: what it is asked to do elsewhere, as a nil
// saver, is nothing. It writes while the training goes on: cuts that are in the pool do not change.
type saver struct {
	out   Output
	of    origin
	every int
	warn  func(error)

	saved   int        // iterations in the newest whole checkpoint in the folder; 0: there is none
	asked   int        // iterations in what was written last, whether it could be or not
	writing chan error // of the write that is going on, nil if none is
	failed  error      // of the last one
}

// openSaver opens a folder for the checkpoints of a training that goes on from those in resume, if that is
// not empty.
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
		return nil, fmt.Errorf("checkpoint folder %s: there is a training of %d iterations in it: resume that, or take another folder", s.out.dir, there[0])
	}
	return s, s.sweep()
}

// takeSaver goes on with the checkpoints of a rank that is lost. If that cannot be, the next one that is to be
// written will say so. The newest may be damaged: only a look at it tells, for what the lost rank knew is lost.
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

// sameFolder reports whether two paths are the same folder.
func sameFolder(a, b string) bool {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, two)
}

// sweep removes what a training that was killed while it wrote has left.
func (s *saver) sweep() error {
	left, err := filepath.Glob(filepath.Join(escapeGlob(s.out.dir), "."+checkpointPrefix+"*.tmp"))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// escapeGlob returns a path as a pattern that it alone fits.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// due writes a checkpoint if it is time for one.
func (s *saver) due(its []Iteration, pool *Pool) {
	if s != nil && len(its)%s.every == 0 {
		s.begin(its, pool)
	}
}

// begin begins to write a checkpoint, when the one before is written.
func (s *saver) begin(its []Iteration, pool *Pool) {
	s.wait()
	s.asked = len(its)
	its, pool, done := slices.Clone(its), pool.snapshot(), make(chan error, 1)
	s.writing = done
	go func() { done <- s.write(its, pool) }()
}

// wait waits for the write that is going on, and notes how it went.
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

// finish writes a checkpoint of all iterations unless there is one, and returns why it could not.
func (s *saver) finish(its []Iteration, pool *Pool) error {
	if s == nil {
		return nil
	}
	warn := s.warn
	s.warn = nil // the caller tells
	defer func() { s.warn = warn }()
	s.wait()
	if len(its) > s.saved {
		s.begin(its, pool)
		s.wait()
	}
	return s.failed
}

// write writes a checkpoint, and removes those that are older than the one before it.
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

// syncFolder has the names of a folder written to disk, where the system does that.
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
