package tensor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel/soft"
)

func init() { programs["given up"] = givenUp }

// The memory that a collective is staged through is not used again after it was given up while the library has
// it: MPICH's call goes on in the library, and ends when the other rank comes.
func TestGivenUpKeepsMemory(t *testing.T) {
	onMPI(t, []int{2}, []string{asProgram + "=given up"})
}

func givenUp(world *cohort.Comm) error {
	l, err := newLab(world, Config{}, soft.Config{})
	if err != nil {
		return err
	}
	x, err := NewOn[float64](l.devs[0], 1000)
	if err != nil {
		return err
	}
	c := l.c
	if l.rank == 1 {
		err = world.Barrier() // rank 0 has given up
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		c = c.WithContext(ctx)
	}
	begun := time.Now()
	late := Allreduce(c, x, x, Sum)
	if l.rank == 1 {
		return errors.Join(err, x.Close(), l.c.Close()) // it may have ended with rank 0's call, or by rank 0's word
	}
	l.devs[0].Trim()
	left := l.drv.Stats().Pinned
	err = errors.Join(err, world.Barrier())
	if !errors.Is(late, cohort.ErrTimeout) {
		return fmt.Errorf("the collective ended with %v after %v, want a timeout", late, time.Since(begun))
	}
	if strings.HasPrefix(world.Caps().Library, "MPICH") && left == 0 {
		err = errors.Join(err, errors.New("no memory is kept for the library's call"))
	}
	return errors.Join(err, x.Close(), l.c.Close())
}
