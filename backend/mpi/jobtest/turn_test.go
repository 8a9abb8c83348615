//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// TestGoroutinesMakeCommunicatorsAtOnce checks that two goroutines of each rank, on communicators of their own, make and
// close communicators and windows without waiting for each other's ranks, at any thread level that lets both call. With
// "leaves" a rank closes the world meanwhile. The others end with an error.
func TestGoroutinesMakeCommunicatorsAtOnce(t *testing.T) {
	// some makes random calls, which are the same on all ranks.
	some := func(base *cohort.Comm, rnd *rand.Rand) error {
		open := []*cohort.Comm{base}
		for range 40 {
			last := open[len(open)-1]
			switch rnd.IntN(6) {
			case 0, 1:
				d, err := open[rnd.IntN(len(open))].Dup()
				if err != nil {
					return err
				}
				open = append(open, d)
			case 2:
				if len(open) > 1 {
					if err := last.Close(); err != nil {
						return err
					}
					open = open[:len(open)-1]
				}
			case 3:
				ctx, cancel := context.WithTimeout(background, time.Millisecond)
				_, err := cohort.Recv(last.WithContext(ctx), make([]int, 1), cohort.AnySource, 99)
				cancel()
				if !errors.Is(err, cohort.ErrTimeout) {
					return fmt.Errorf("Recv: got %w, want ErrTimeout", err)
				}
			case 4:
				if err := last.Barrier(); err != nil {
					return err
				}
			case 5:
				win, err := cohort.AllocateShared[int](last, 1)
				if err = errors.Join(err, win.Close()); err != nil {
					return err
				}
			}
		}
		return nil
	}
	joins("makes", func(w *cohort.Comm) error {
		leaves := os.Getenv("LEAVES") != ""
		seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
		ended := make(chan error, 2)
		for g := range uint64(2) {
			base, e := w.Dup()
			if err = errors.Join(err, e); err != nil {
				return err
			}
			go func() { ended <- some(base, rand.New(rand.NewPCG(seed, g))) }()
		}
		if leaves && w.Rank() == 0 {
			time.Sleep(time.Duration(seed) * time.Millisecond) // until some call
			err = w.Close()
			<-ended
			<-ended
			return err
		}
		err = errors.Join(<-ended, <-ended)
		if leaves && errors.Is(err, cohort.ErrPeerLost) {
			err = nil
		}
		return errors.Join(err, w.Close())
	})
	jobs := func(t *testing.T, name, level string, leaves string) {
		seeds := 20
		if testing.Short() {
			seeds = 1
		}
		for seed := range seeds {
			start(t, name, 3, "makes", "COHORT_MPI_THREAD="+level, fmt.Sprint("SEED=", seed), "LEAVES="+leaves).must(t)
		}
	}
	for _, name := range libraries {
		t.Run(name+"/serialized", func(t *testing.T) { jobs(t, name, "serialized", "") })
		t.Run(name+"/multiple", func(t *testing.T) { jobs(t, name, "multiple", "") })
		t.Run(name+"/serialized, leaves", func(t *testing.T) { jobs(t, name, "serialized", "1") })
	}
}
