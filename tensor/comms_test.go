package tensor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Collectives of one communicator do not wait for those of another one: a set of them is done in whatever
// order.
func TestCollectivesOfTwo(t *testing.T) {
	onRanks(t, []int{2, 3, 4}, collectivesOfTwo)
}

// collectivesOfTwo has all ranks but the last wait for its Bcast on one communicator. It comes only when they have
// told it that their Allreduce on another one, which they started later, is done.
func collectivesOfTwo(_ *testing.T, world *cohort.Comm) error {
	const n, tag = 700, 8 // several pieces
	a, err := NewComm(world, &small)
	if err != nil {
		return err
	}
	b, err := NewComm(world, &small)
	if err != nil {
		return err
	}
	me, root := world.Rank(), world.Size()-1
	sent, err1 := stuff[float64](CPU, root, n)
	sum, err2 := Of([]int64{int64(me) + 1}, 1)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	word := []byte{1}
	if me == root {
		late, err := Iallreduce(b, sum, sum, Sum)
		if err != nil {
			return err
		}
		for r := range root {
			if _, err := cohort.Recv(world, word, r, tag); err != nil {
				return err
			}
		}
		h, err := Ibcast(a, sent, root)
		return errors.Join(err, WaitAll(h, late), a.Close(), b.Close())
	}
	got := must[float64](n)
	first, err := Ibcast(a, got, root)
	if err != nil {
		return err
	}
	second, err := Iallreduce(b, sum, sum, Sum)
	if err != nil {
		return err
	}
	i, err := WaitAny(first, second)
	if all := int64(root+1) * int64(root+2) / 2; err == nil && (i != 1 || sum.Data()[0] != all) {
		err = fmt.Errorf("rank %d: operation %d is done first, and the sum is %d, want 1 and %d", me, i, sum.Data()[0], all)
	}
	select {
	case <-first.Done():
		err = errors.Join(err, errors.New("the Bcast is done without its root"))
	default:
	}
	if err := errors.Join(err, cohort.Send(world, word, root, tag)); err != nil {
		return err
	}
	return errors.Join(WaitAll(first, second), holds(got, root, n), a.Close(), b.Close())
}
