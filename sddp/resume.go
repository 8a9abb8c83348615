package sddp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// CheckpointError says that a training ended early, and what of it can be gone on with.
type CheckpointError struct {
	Dir        string // the folder of the checkpoints
	Iterations int    // in the newest; 0 if there is none
	Unsaved    error  // why a newer one could not be written; nil if it could
	Err        error  // what ended the training
}

// Error returns what ended the training, and why a checkpoint could not be written.
func (e *CheckpointError) Error() string {
	if e.Unsaved != nil {
		return e.Err.Error() + "\n" + e.Unsaved.Error()
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *CheckpointError) Unwrap() error { return e.Err }

// untilStop returns the context of the linear programs, which also ends when the ranks are asked to stop.
// Messages go on then: by them the ranks tell each other.
func (o Options) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(ctx)
	if o.Stop != nil {
		go func() {
			select {
			case <-o.Stop:
				cancel(ErrStopped)
			case <-work.Done():
			}
		}()
	}
	return work, func() { cancel(nil) }
}

// start is a checkpoint to go on from: its iterations on all ranks, its cuts on rank 0, in a file.
type start struct {
	its  []Iteration
	in   *checkpointReader
	file *os.File
}

// close closes the file.
func (s *start) close() {
	if s.file != nil {
		s.file.Close() // it was only read
	}
}

// openCheckpoints opens the folder of the checkpoints, and the one to go on from, before any work is done. It
// returns no iterations if the training is to begin, or has begun: then only a rank that is the first one
// since the others were lost takes the folder over.
//
// Collective: all ranks call it, and an error is one of all.
func (tr *trainer) openCheckpoints(of origin) (*start, error) {
	opt, from := tr.opt, &start{}
	switch {
	case opt.Checkpoint == "" && opt.Resume == "":
		return from, nil
	case len(tr.its) > 0:
		if tr.rank == 0 && tr.saver == nil && opt.Checkpoint != "" {
			tr.saver = takeSaver(opt, of)
		}
		return from, nil
	}
	packed, err := tr.fromFirst("checkpoint", func() (_ []byte, err error) {
		if there, _ := checkpointsIn(opt.Checkpoint); len(there) > 0 && len(opt.Recovery.Losses()) > 0 {
			opt.Resume = opt.Checkpoint // what a rank that is lost has written
		}
		if opt.Resume != "" {
			if err := from.open(opt, of); err != nil {
				return nil, err
			}
		}
		if opt.Checkpoint != "" {
			if tr.saver, err = openSaver(opt); err != nil {
				return nil, err
			}
			tr.saver.of = of
		}
		if from.in == nil {
			return nil, nil
		}
		if tr.saver != nil && sameFolder(opt.Checkpoint, opt.Resume) {
			tr.saver.saved = len(from.in.its)
		}
		return packIterations(from.in.its), nil
	})
	if err != nil {
		from.close()
		return nil, err
	}
	from.its = unpackIterations(packed, of)
	return from, nil
}

// open opens the newest checkpoint of a folder that is whole, on rank 0.
func (s *start) open(opt Options, of origin) error {
	there, err := checkpointsIn(opt.Resume)
	if err != nil {
		return err
	}
	if len(there) == 0 && !opt.ResumeOrBegin {
		return fmt.Errorf("checkpoint folder %s: there is no checkpoint in it to go on from", opt.Resume)
	}
	var damaged error
	for _, n := range there {
		name := filepath.Join(opt.Resume, checkpointName(n))
		err := s.openFile(name)
		if err == nil {
			p := &problems{}
			s.in.differences(p, name, of)
			return p.err()
		}
		s.close()
		damaged = errors.Join(damaged, err)
		if opt.Warn != nil {
			opt.Warn(err)
		}
	}
	return damaged // of all there are
}

// openFile opens a checkpoint.
func (s *start) openFile(name string) (err error) {
	if s.file, err = os.Open(name); err != nil {
		return fmt.Errorf("%s: %w", name, plainError(err))
	}
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", name, plainError(err))
	}
	s.in, err = readCheckpoint(name, s.file, info.Size())
	return err
}

// restoreChunk is about how many numbers of cuts go to the ranks at a time: 64 KiB.
const restoreChunk = 1 << 13

// restore gives all ranks what a checkpoint has, up to where a training with these options would have
// stopped by itself.
//
// Collective: all ranks call it, and an error is one of all.
func (tr *trainer) restore(from *start) error {
	n := len(from.its)
	if n == 0 {
		return nil
	}
	for i := range from.its {
		if tr.opt.stop(from.its[:i+1]) != "" {
			n = i + 1
			break
		}
	}
	its := from.its[:n:n]
	if err := tr.memory.reserveFirst(n); err != nil {
		return err
	}
	width := 1 + tr.pool.reserv
	chunk := max(restoreChunk/width, 1) * width
	numbers := make([]float64, min(chunk, n*tr.opt.Passes*width))
	for t := range tr.pool.Stages() {
		for at := 0; at < n*tr.opt.Passes*width; at += chunk {
			part := numbers[:min(chunk, n*tr.opt.Passes*width-at)]
			packed, err := tr.fromFirst("checkpoint", func() ([]byte, error) {
				err := from.in.cuts(t, at, part)
				return packNumbers(part), err
			})
			if err != nil {
				return err
			}
			for i := range part {
				part[i] = math.Float64frombits(binary.LittleEndian.Uint64(packed[8*i:]))
			}
			if err := tr.memory.add(t, part); err != nil {
				return err
			}
		}
	}
	if err := tr.together("checkpoint", tr.computesAlike(its)); err != nil {
		return err
	}
	tr.its, tr.resumed, tr.lower = its, n, its[n-1].LowerBound
	return nil
}

// packNumbers returns the bits of numbers.
func packNumbers(x []float64) []byte {
	out := make([]byte, 0, 8*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
	}
	return out
}

// computesAlike solves the last program of a checkpoint again. Where its optimum has other bits than it had,
// by another compiler or library, the cuts to come would not be those of a training without interruption.
func (tr *trainer) computesAlike(its []Iteration) error {
	lower, err := tr.planners[0].lowerBound()
	if err != nil {
		return err
	}
	last := its[len(its)-1].LowerBound
	if lower == last || lower < last && len(its) > 1 && its[len(its)-2].LowerBound == last {
		return nil // see iterate: the bound is the largest so far
	}
	return fmt.Errorf("checkpoint: this program does not compute as the one did that wrote it: the lower bound after iteration %d is %v, and was %v",
		len(its), lower, last)
}

// stopped returns the error of an iteration. If it is that all ranks were asked to stop, rank 0 writes what
// there is, and the others wait for that, for a launcher ends the job when the first of them has ended.
func (tr *trainer) stopped(reason error) error {
	if tr.opt.Checkpoint == "" || !errors.Is(reason, ErrStopped) {
		return reason
	}
	e := &CheckpointError{Dir: tr.opt.Checkpoint, Err: reason}
	var err error
	if e.Iterations, e.Unsaved, err = tr.saveAll(); err != nil {
		return err
	}
	return e
}

// ended returns the error of a training that has ended early. Rank 0 writes what there is, whatever the
// reason.
func (tr *trainer) ended(reason error) error {
	var at *CheckpointError
	if tr.saver == nil || errors.As(reason, &at) {
		return reason
	}
	at = &CheckpointError{Dir: tr.opt.Checkpoint, Err: reason, Unsaved: tr.saver.finish(tr.its, tr.pool)}
	at.Iterations = tr.saver.saved
	return at
}

// saveAll writes a checkpoint of all iterations, and returns on all ranks how many the newest has, and why it
// is not of all.
//
// Collective: all ranks call it.
func (tr *trainer) saveAll() (saved int, unsaved, err error) {
	if tr.opt.Checkpoint == "" {
		return 0, nil, nil
	}
	if tr.saver != nil { // what is saved stays so, whoever can be told
		defer func() { saved = tr.saver.saved }()
	}
	packed, err := tr.fromFirst("checkpoint", func() ([]byte, error) {
		unsaved = tr.saver.finish(tr.its, tr.pool)
		text := ""
		if unsaved != nil {
			text = unsaved.Error()
		}
		return packTexts([][]byte{binary.LittleEndian.AppendUint64(nil, uint64(tr.saver.saved)), []byte(text)}), nil
	})
	if err != nil {
		return 0, unsaved, err
	}
	texts := unpackTexts(packed)
	if unsaved == nil && len(texts[1]) > 0 {
		unsaved = &firstError{string(texts[1])}
	}
	return int(binary.LittleEndian.Uint64(texts[0])), unsaved, nil
}
