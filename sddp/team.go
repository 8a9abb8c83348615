package sddp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cohort-hpc/cohort"
)

// ErrPeer is wrapped by the errors that ranks return because another one failed.
var ErrPeer = errors.New("sddp: another rank failed")

// team is the communication of the ranks. Every method but block is collective.
type team struct {
	world  *cohort.Comm
	rank   int
	size   int
	waited time.Duration // in communication, so far
	counts []int
	displs []int
}

// newTeam returns the team of a communicator.
func newTeam(world *cohort.Comm) *team {
	n := world.Size()
	return &team{world: world, rank: world.Rank(), size: n, counts: make([]int, n), displs: make([]int, n)}
}

// block returns the half-open range of n items that belongs to a rank. Ranges are contiguous, in the
// order of the ranks, and differ in length by at most one.
func (t *team) block(rank, n int) (lo, hi int) { return rank * n / t.size, (rank + 1) * n / t.size }

// ErrStopped is wrapped by the error of a training that was asked to stop (Options.Stop).
var ErrStopped = errors.New("sddp: the training was stopped")

// stopMark is the NaN with which a rank reports in an exchange that it was asked to stop. It is a quiet NaN
// that arithmetic does not produce. Any other NaN reports a failure.
var stopMark = math.Float64frombits(0x7ff8_0053_746f_7000)

// isStop reports whether a number is stopMark.
func isStop(x float64) bool { return math.Float64bits(x) == math.Float64bits(stopMark) }

// share sends the items of each rank to all ranks: n items of width numbers, with each rank's block in
// place. A rank whose work failed passes the error, and then all ranks return one: that rank its own, the
// others one that names the rank. ErrStopped is returned by all ranks, unless a rank failed. A rank
// reports both by NaN, which items never hold.
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

// together returns an error on all ranks if one of them failed: a failed rank returns its own, the others
// one with that of the lowest failed rank.
func (t *team) together(what string, failed error) error {
	err := cohort.JoinErrors(t.world, failed)
	var other interface{ Follows() bool }
	switch {
	case failed != nil:
		return failed
	case errors.As(err, &other):
		return fmt.Errorf("%s: %w: %w", what, ErrPeer, err)
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// fromFirst runs read on rank 0 only and returns its bytes, or its error as together does, on all ranks.
func (t *team) fromFirst(what string, read func() ([]byte, error)) ([]byte, error) {
	return t.from(0, what, read)
}

// from is fromFirst with another rank than 0.
func (t *team) from(root int, what string, read func() ([]byte, error)) (data []byte, err error) {
	if t.rank == root {
		data, err = read()
	}
	if err = t.together(what, err); err != nil {
		return nil, err
	}
	n, err := cohort.BcastOne(t.world, len(data), root)
	if err == nil {
		if t.rank != root {
			data = make([]byte, n)
		}
		err = cohort.Bcast(t.world, data, root)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return data, nil
}

// same returns an error on all ranks unless all have the same key.
func (t *team) same(what string, key uint64) error {
	ends := []uint64{key, ^key}
	if err := cohort.Allreduce(t.world, ends, ends, cohort.Max); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if ends[0] != ^ends[1] {
		return fmt.Errorf("sddp: the ranks do not have the same %s", what)
	}
	return nil
}

// LoadCase reads a case on rank 0 and sends it to all ranks. Only rank 0 needs the files.
//
// Collective: all ranks of world call it. Only rank 0 uses dir.
//
// Errors: those of [ReadCase] on rank 0, and on the others an [ErrPeer] with the same text.
func LoadCase(world *cohort.Comm, dir string) (*Case, error) {
	packed, err := newTeam(world).fromFirst("read case", func() ([]byte, error) {
		text, err := readCaseText(dir)
		if err == nil {
			_, err = parseCase(dir, text) // here, so that all ranks return the error of rank 0
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

// packTexts joins texts, each preceded by its length.
func packTexts(texts [][]byte) []byte {
	var out []byte
	for _, t := range texts {
		out = binary.LittleEndian.AppendUint64(out, uint64(len(t)))
		out = append(out, t...)
	}
	return out
}

// unpackTexts splits what packTexts joined.
func unpackTexts(b []byte) [][]byte {
	var out [][]byte
	for len(b) >= 8 {
		n := binary.LittleEndian.Uint64(b)
		out = append(out, b[8:8+n])
		b = b[8+n:]
	}
	return out
}

// fingerprint returns 64 bits of the hash of a text.
func fingerprint(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.LittleEndian.Uint64(sum[:])
}
