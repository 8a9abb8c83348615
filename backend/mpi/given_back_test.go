//go:build cgo && linux

package mpi_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// TestGivenBack checks that communicators are given back whose messages have all been received, though nobody has
// waited for the sends: libraries have a few thousand.
func TestGivenBack(t *testing.T) {
	leftOut(t, "requests are given back to the library")
	program("to oneself", func() error {
		return with(func(w *cohort.Comm) error {
			for range 20 {
				d, err := w.Split(w.Rank(), 0)
				if err != nil {
					return err
				}
				err = cohort.Send(d, []int{1}, 0, 1)
				_, err2 := cohort.Recv(d, make([]int, 1), 0, 1)
				if err = errors.Join(err, err2, d.Close()); err != nil {
					return err
				}
			}
			return nil
		})
	})
	for _, name := range libraries {
		t.Run(name, func(t *testing.T) {
			launcher(t, name)
			tool := compiledC(t, mpicc(t, name), orderTool, "order.so", "-shared", "-fPIC")
			e := start(t, name, 2, "to oneself", "LD_PRELOAD="+tool).must(t)
			if got := e.lines("finalize"); !slices.Equal(got, []string{"0 1", "0 1"}) {
				t.Errorf("at the end there are (communicators, the same thread) %q\n%s", got, e.out)
			}
		})
	}
}
