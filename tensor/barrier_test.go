package tensor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Neither form of Barrier ends before the last rank has come.
func TestBarrier(t *testing.T) {
	onRanks(t, []int{1, 2, 3, 4}, barriers) // and in the program that processes run
}

func barriers(_ *testing.T, world *cohort.Comm) error {
	c, err := NewComm(world, &small)
	if err != nil {
		return err
	}
	for late := range c.Size() {
		for _, blocking := range []bool{true, false} {
			if err := barrierWaits(world, c, late, blocking); err != nil {
				return fmt.Errorf("rank %d: rank %d comes late, blocking %v: %w", c.Rank(), late, blocking, err)
			}
		}
	}
	return c.Close()
}

// barrierWaits has all ranks but one come to a barrier and speak with that one meanwhile, which comes when
// all of them have seen that they still wait.
func barrierWaits(world *cohort.Comm, c *Comm, late int, blocking bool) error {
	const talks, tag = 5, 6 // a barrier that does not wait has ended by the end of them
	barrier := func() (*Handle, error) {
		if !blocking {
			return c.Ibarrier()
		}
		h := newHandle()
		go func() { h.finish(noStatus, c.Barrier()) }()
		return h, nil
	}
	word := []byte{1}
	if c.Rank() == late {
		for range talks {
			for r := range c.Size() {
				if r == late {
					continue
				}
				if _, err := cohort.Recv(world, word, r, tag); err != nil {
					return err
				}
				if err := cohort.Send(world, word, r, tag); err != nil {
					return err
				}
			}
		}
		h, err := barrier()
		if err != nil {
			return err
		}
		return h.Wait()
	}
	h, err := barrier()
	if err != nil {
		return err
	}
	ended := 0
	for range talks {
		select { // before the word that may be the last one that the other rank waits for
		case <-h.Done():
			ended++
		default:
		}
		if err := cohort.Send(world, word, late, tag); err != nil {
			return err
		}
		if _, err := cohort.Recv(world, word, late, tag); err != nil {
			return err
		}
	}
	err = h.Wait()
	if ended > 0 {
		err = errors.Join(err, fmt.Errorf("the barrier had ended before rank %d came", late))
	}
	return err
}
