package sddp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cohort-hpc/cohort"
)

// ErrPeer is wrapped by the errors that ranks return because another one failed.
var ErrPeer = errors.New("sddp: another rank failed")

// team is what the ranks do together. Every method but those of arithmetic is collective.
type team struct {
	world  *cohort.Comm
	rank   int
	size   int
	waited time.Duration // in messages, so far
	counts []int
	displs []int
}

// newTeam returns the team of a communicator.
func newTeam(world *cohort.Comm) *team {
	n := world.Size()
	return &team{world: world, rank: world.Rank(), size: n, counts: make([]int, n), displs: make([]int, n)}
}

// block returns the part of n items, from lo to before hi, that is a rank's: contiguous, in the
// order of the ranks, and as even as can be.
func (t *team) block(rank, n int) (lo, hi int) { return rank * n / t.size, (rank + 1) * n / t.size }

// ErrStopped is wrapped by the error of a training that was asked to stop (Options.Stop).
var ErrStopped = errors.New("sddp: the training was stopped")

// stopMark is the NaN by which a rank says in an exchange that it was asked to stop: quiet, and of no
// arithmetic. Any other NaN says that it failed.
var stopMark = math.Float64frombits(0x7ff8_0053_746f_7000)

// isStop reports whether a number is stopMark.
func isStop(x float64) bool { return math.Float64bits(x) == math.Float64bits(stopMark) }

// share gives every rank the items of all: n items of width numbers, of which each rank brings its
// block in place. A rank that could not make its own passes why, and then all ranks return an
// error: that one its own, the others one that names it. If it wraps ErrStopped it is one on all of
// them, unless another one failed. Items hold no NaN, which says this.
func (t *team) share(what string, all []float64, n, width int, failed error) error {
	for r := range t.size {
		lo, hi := t.block(r, n)
		t.displs[r], t.counts[r] = lo*width, (hi-lo)*width
	}
	stopped := errors.Is(failed, ErrStopped)
	if failed != nil {
		mine, mark := all[t.displs[t.rank]:][:t.counts[t.rank]], math.NaN()
		if stopped {
			mark = stopMark
		}
		for i := range mine {
			mine[i] = mark
		}
	}
	start := time.Now()
	err := cohort.Allgatherv(t.world, all, all, t.counts, t.displs)
	t.waited += time.Since(start)
	switch {
	case failed != nil && !stopped:
		return failed
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	for r := range t.size {
		if t.counts[r] == 0 || !math.IsNaN(all[t.displs[r]]) {
			continue
		}
		if !isStop(all[t.displs[r]]) {
			return fmt.Errorf("%s: %w: rank %d", what, ErrPeer, r)
		}
		stopped = true
	}
	if stopped {
		return ErrStopped
	}
	return nil
}

// together returns an error on all ranks if one of them failed, and has nothing else to say yet: that
// one its own, the others one that names the lowest of those that did.
func (t *team) together(what string, failed error) error {
	mine := t.size
	if failed != nil {
		mine = t.rank
	}
	first, err := cohort.AllreduceOne(t.world, mine, cohort.Min)
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case first < t.size:
		return fmt.Errorf("%s: %w: rank %d", what, ErrPeer, first)
	}
	return nil
}

// fromFirst runs make on rank 0 alone and gives all ranks the bytes it returned, or its error.
func (t *team) fromFirst(what string, make func() ([]byte, error)) ([]byte, error) {
	var data []byte
	var failed error
	var head [2]int64 // 1 for an error; length
	if t.rank == 0 {
		if data, failed = make(); failed != nil {
			data, head[0] = []byte(failed.Error()), 1
		}
		head[1] = int64(len(data))
	}
	if err := cohort.Bcast(t.world, head[:], 0); err != nil {
		return nil, errors.Join(failed, fmt.Errorf("%s: %w", what, err))
	}
	if t.rank != 0 {
		data = append(data, zeros(int(head[1]))...)
	}
	if err := cohort.Bcast(t.world, data, 0); err != nil {
		return nil, errors.Join(failed, fmt.Errorf("%s: %w", what, err))
	}
	switch {
	case failed != nil:
		return nil, failed
	case head[0] != 0:
		return nil, &firstError{string(data)}
	}
	return data, nil
}

// zeros returns n zero bytes.
func zeros(n int) []byte { return make([]byte, n) }

// firstError is the error of rank 0 on the others: the same text, and ErrPeer.
type firstError struct{ text string }

func (e *firstError) Error() string        { return e.text }
func (e *firstError) Is(target error) bool { return target == ErrPeer }

// same returns an error on all ranks unless all have the same key.
func (t *team) same(what string, key uint64) error {
	low, err := cohort.AllreduceOne(t.world, key, cohort.Min)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	high, err := cohort.AllreduceOne(t.world, key, cohort.Max)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if low != high {
		return fmt.Errorf("sddp: the ranks do not have the same %s", what)
	}
	return nil
}

// LoadCase reads a case on rank 0 and gives it to all ranks, so that only rank 0 needs the files.
// Its error is the same on all of them.
//
// Collective: all ranks of world call it.
func LoadCase(world *cohort.Comm, dir string) (*Case, error) {
	packed, err := newTeam(world).fromFirst("read case", func() ([]byte, error) {
		text, err := readCaseText(dir)
		if err == nil {
			_, err = parseCase(dir, text) // so that its error is rank 0's, told once
		}
		return packTexts(text[:]), err
	})
	if err != nil {
		return nil, err
	}
	var text caseText
	copy(text[:], unpackTexts(packed))
	return parseCase(dir, text)
}

// packTexts joins texts, each after its length.
func packTexts(texts [][]byte) []byte {
	var out []byte
	for _, t := range texts {
		out = binary.LittleEndian.AppendUint64(out, uint64(len(t)))
		out = append(out, t...)
	}
	return out
}

// unpackTexts takes apart what packTexts joined.
func unpackTexts(b []byte) [][]byte {
	var out [][]byte
	for len(b) >= 8 {
		n := binary.LittleEndian.Uint64(b)
		out = append(out, b[8:8+n])
		b = b[8+n:]
	}
	return out
}
