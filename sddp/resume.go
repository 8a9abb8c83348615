package sddp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// CheckpointError reports that a training ended early, and what a later training can resume.
type CheckpointError struct {
	Dir        string // the folder of the checkpoints
	Iterations int    // in the newest checkpoint; 0 if there is none
	Unsaved    error  // why a newer checkpoint could not be written; nil if it was
	Err        error  // what ended the training
}

// Error returns the text of Err, and that of Unsaved if it is not nil.
func (e *CheckpointError) Error() string {
	if e.Unsaved != nil {
		return e.Err.Error() + "\n" + e.Unsaved.Error()
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *CheckpointError) Unwrap() error { return e.Err }

// untilStop returns the context of the linear programs. It also ends when this rank is asked to stop.
// Communication continues then, so that the rank can report the stop to the others.
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

// start is a checkpoint to resume from, in a file or in the memory of a rank that was not lost: the iterations and
// the solver on all ranks, the cuts on the root.
type start struct {
	root    int
	its     []Iteration
	resumed int // how many of them are from a file
	solver  string
	in      *checkpointReader
	file    *os.File // nil: in memory
}

// close closes the file.
func (s *start) close() {
	if s.file != nil {
		s.file.Close() // only read
	}
}

// openCheckpoints opens the folder of the checkpoints, and the checkpoint to resume from, before the
// work begins. It returns no iterations if the training begins. After a loss, it is the state of a rank that has it in
// memory, if there is one.
//
// Collective: all ranks call it. If one rank fails, all return an error.
func (tr *trainer) openCheckpoints() (*start, error) {
	opt, of, from := tr.opt, tr.of, &start{}
	if opt.Recovery != nil {
		furthest, err := cohort.AllreduceOne(tr.world, cohort.Loc[int]{Val: len(tr.before().its), Idx: int64(tr.rank)}, cohort.MaxLoc)
		if err != nil {
			return nil, fmt.Errorf("recovery: %w", err)
		}
		if furthest.Val > 0 {
			return tr.takeOver(int(furthest.Idx))
		}
		opt.Recovery.note(1)
	}
	if opt.Checkpoint == "" && opt.Resume == "" {
		return from, nil
	}
	packed, err := tr.fromFirst("checkpoint", func() (_ []byte, err error) {
		if there, _ := checkpointsIn(opt.Checkpoint); len(there) > 0 && opt.Recovery != nil && tr.world.Generation() > 0 {
			opt.Resume = opt.Checkpoint // a lost rank wrote it
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
		return packTexts([][]byte{[]byte(from.in.solver), packIterations(from.in.its)}), nil
	})
	if err != nil {
		from.close()
		return nil, err
	}
	if texts := unpackTexts(packed); len(texts) > 0 {
		from.solver, from.its = string(texts[0]), unpackIterations(texts[1], of)
	}
	from.resumed = len(from.its)
	return from, nil
}

// before returns the part of the training before the last loss. It is empty on a rank that is new.
func (tr *trainer) before() *trainer {
	if r := tr.opt.Recovery; r != nil && r.kept != nil && r.kept.of == tr.of {
		return r.kept
	}
	return &trainer{}
}

// takeOver returns the state of a rank that has completed the most iterations. A rank completes an iteration with the
// sums of all ranks, which they send after the cuts of all stages are in the memory of all nodes: so it has all cuts, and no
// completed iteration is lost.
//
// Collective: all ranks call it. If one rank fails, all return an error.
func (tr *trainer) takeOver(root int) (*start, error) {
	from, of, old := &start{root: root}, tr.of, tr.before()
	if tr.rank == 0 && tr.opt.Checkpoint != "" {
		if tr.saver = old.saver; tr.saver == nil {
			tr.saver = takeSaver(tr.opt, of)
		}
	}
	packed, err := tr.from(root, "recovery", func() ([]byte, error) {
		var b bytes.Buffer
		err := encodeCheckpoint(&b, of, old.its, old.pool)
		if err == nil {
			from.in, err = readCheckpoint("recovery", bytes.NewReader(b.Bytes()), int64(b.Len()))
		}
		return packTexts([][]byte{packNumbers([]float64{float64(old.resumed), time.Since(old.began).Seconds()}), packIterations(old.its)}), err
	})
	if err != nil {
		return nil, err
	}
	texts := unpackTexts(packed)
	facts := unpackNumbers(texts[0])
	from.solver, from.its, from.resumed = of.solver, unpackIterations(texts[1], of), int(facts[0])
	again := len(from.its) + 1
	if tr.opt.stop(from.its) != "" {
		again = 0
	}
	tr.opt.Recovery.note(again)
	spent := time.Duration(facts[1] * float64(time.Second))
	tr.began = time.Now().Add(-spent)
	tr.late = tr.opt.TimeLimit > 0 && spent >= tr.opt.TimeLimit
	return from, nil
}

// open opens the newest undamaged checkpoint of a folder, on rank 0.
func (s *start) open(opt Options, of origin) error {
	there, err := checkpointsIn(opt.Resume)
	if err != nil {
		return err
	}
	if len(there) == 0 && !opt.ResumeOrBegin {
		return fmt.Errorf("checkpoint folder %s: it has no checkpoint to resume from", opt.Resume)
	}
	var damaged error
	for _, n := range there {
		name := filepath.Join(opt.Resume, checkpointName(n))
		err := s.openFile(name)
		if err == nil {
			p := &problems{}
			s.in.differences(p, name, of)
			if s.in.solver != of.solver && p.err() == nil && opt.Warn != nil {
				opt.Warn(fmt.Errorf("%s was written with solver %s; this training continues with %s, "+
					"which finds other optimal bases: its cuts differ from those of a training without interruption", name, s.in.solver, of.solver))
			}
			return p.err()
		}
		s.close()
		damaged = errors.Join(damaged, err)
		if opt.Warn != nil {
			opt.Warn(err)
		}
	}
	return damaged // nil if there is no checkpoint
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

// restoreChunk is about how many numbers the root sends at a time: 64 KiB.
const restoreChunk = 1 << 13

// restore sends the content of a checkpoint to all ranks, up to the iteration after which a training
// with these options would have stopped.
//
// Collective: all ranks call it. If one rank fails, all return an error.
func (tr *trainer) restore(from *start, solver lp.Info) error {
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
	for t := range tr.pool.lists { // with a selection a stage has one list
		if err := tr.receive(from.root, its[n-1].ListCuts[t]*width, width, func(at int, part []float64) error { return from.in.cuts(t, at, part) },
			func(part []float64) error { return tr.memory.add(t, part) }); err != nil {
			return err
		}
		if sel := tr.pool.selection; sel != nil {
			var points []float64
			if err := tr.receive(from.root, n*tr.opt.Passes*tr.pool.reserv, 1, func(at int, part []float64) error { return from.in.trials(t, at, part) },
				func(part []float64) error { points = append(points, part...); return nil }); err != nil {
				return err
			}
			sel.add(tr.pool, t, points)
		}
	}
	if err := tr.together("checkpoint", tr.computesAlike(its, from.solver == solver.String())); err != nil {
		return err
	}
	tr.its, tr.resumed, tr.lower = its, min(from.resumed, n), its[n-1].LowerBound
	if done := len(tr.before().its); done > 0 && tr.opt.Progress != nil {
		for _, it := range its[done:] { // others have completed them, and this rank has seen those before
			tr.opt.Progress(it)
		}
	}
	return nil
}

// receive sends numbers, which root reads, to all ranks: a whole number of groups at a time.
//
// Collective: all ranks call it. If one rank fails, all return an error.
func (tr *trainer) receive(root, all, group int, read func(at int, part []float64) error, take func(part []float64) error) error {
	numbers := make([]float64, max(restoreChunk/group, 1)*group)
	for at := 0; at < all; at += len(numbers) {
		part := numbers[:min(len(numbers), all-at)]
		packed, err := tr.from(root, "checkpoint", func() ([]byte, error) {
			err := read(at, part)
			return packNumbers(part), err
		})
		if err != nil {
			return err
		}
		if err := take(unpackNumbers(packed)); err != nil {
			return err
		}
	}
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

// unpackNumbers returns what packNumbers packed.
func unpackNumbers(b []byte) []float64 {
	x := make([]float64, len(b)/8)
	for i := range x {
		x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return x
}

// computesAlike solves the last program of a checkpoint again. If the optimum has other bits, because of
// another compiler or library, further cuts would differ from those of an uninterrupted training. With
// another solver they may, but the optimum must be the same but for rounding.
func (tr *trainer) computesAlike(its []Iteration, sameSolver bool) error {
	lower, err := tr.planners[0].lowerBound()
	if err != nil {
		return err
	}
	last := its[len(its)-1].LowerBound
	if lower == last || lower < last && len(its) > 1 && its[len(its)-2].LowerBound == last {
		return nil // iterate keeps the largest bound
	}
	if !sameSolver && math.Abs(lower-last) <= 1e-8*math.Abs(last) {
		return nil
	}
	return fmt.Errorf("checkpoint: the lower bound after iteration %d is %v here and was %v: resume with the program, solver and kind of processor that wrote the checkpoint",
		len(its), lower, last)
}

// stopped returns the error of an iteration. If all ranks were asked to stop, rank 0 first saves the
// training. The others wait for it, because a launcher ends the job when the first rank ends.
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

// ended returns the error of a training that ended early. Rank 0 saves the training first, whatever the
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

// saveAll writes a checkpoint of all iterations. It returns on all ranks how many iterations are saved,
// and why not all of them.
//
// Collective: all ranks call it.
func (tr *trainer) saveAll() (saved int, unsaved, err error) {
	if tr.opt.Checkpoint == "" {
		return 0, nil, nil
	}
	if tr.saver != nil { // report it even if the exchange below fails
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
		unsaved = fmt.Errorf("%w: rank 0: %s", ErrPeer, texts[1])
	}
	return int(binary.LittleEndian.Uint64(texts[0])), unsaved, nil
}
