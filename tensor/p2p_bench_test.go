package tensor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Blocking messages of tensors on the processor do not allocate: short ones, and, where the other rank
// waits for them, long ones.
func TestMessagesAllocate(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	for _, n := range []int{1, 100, 100000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
				c, err := messageComm(world)
				if err != nil {
					return err
				}
				x, _ := New[float64](n)
				const runs = 200 // AllocsPerRun adds one
				other := 1 - c.Rank()
				var failed error
				round := func() {
					if c.Rank() == 0 {
						if err := Send(c, x, other, 0); err != nil {
							failed = err
						}
					}
					if _, err := Recv(c, x, other, 0); err != nil {
						failed = err
					}
					if c.Rank() == 1 {
						if err := Send(c, x, other, 0); err != nil {
							failed = err
						}
					}
				}
				for range 20 { // what is made once
					round()
				}
				if c.Rank() == 1 { // it counts both ranks' together
					for range runs + 1 {
						round()
					}
				} else if got := testing.AllocsPerRun(runs, round); got != 0 {
					t.Errorf("a round trip of %d numbers makes %v allocations", n, got)
				}
				return errors.Join(failed, c.Close())
			})
		})
	}
}

// BenchmarkMessages is half a round trip between two goroutines, beside the root package's own.
func BenchmarkMessages(b *testing.B) {
	for _, n := range []int{8, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%d/tensor", n), func(b *testing.B) {
			pingpong(b, n, func(c *Comm, t *Tensor[uint8], other int) error { return Send(c, t, other, 0) },
				func(c *Comm, t *Tensor[uint8], other int) error { _, err := Recv(c, t, other, 0); return err })
		})
		b.Run(fmt.Sprintf("%d/slice", n), func(b *testing.B) {
			pingpong(b, n, func(c *Comm, t *Tensor[uint8], other int) error { return cohort.Send(c.coll, t.data, other, 0) },
				func(c *Comm, t *Tensor[uint8], other int) error {
					_, err := cohort.Recv(c.coll, t.data, other, 0)
					return err
				})
		})
	}
}

func pingpong(b *testing.B, n int, send, recv func(*Comm, *Tensor[uint8], int) error) {
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		c, err := NewComm(world, nil)
		if err != nil {
			return err
		}
		t, err := New[uint8](n)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			b.ResetTimer()
		}
		for i := range 2 * ((b.N + 1) / 2) {
			if i%2 == c.Rank() {
				err = send(c, t, 1-c.Rank())
			} else {
				err = recv(c, t, 1-c.Rank())
			}
			if err != nil {
				return err
			}
		}
		return errors.Join(world.Barrier(), c.Close())
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMessageSelf is a message of a rank to itself: what a short one costs beside the root package's.
func BenchmarkMessageSelf(b *testing.B) {
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		c, err := NewComm(world, nil)
		if err != nil {
			return err
		}
		t, _ := New[uint8](64)
		b.Run("tensor", func(b *testing.B) {
			for b.Loop() {
				err = errors.Join(err, Send(c, t, 0, 0))
				_, e := Recv(c, t, 0, 0)
				err = errors.Join(err, e)
			}
		})
		b.Run("slice", func(b *testing.B) {
			for b.Loop() {
				err = errors.Join(err, cohort.Send(c.coll, t.data, 0, 0))
				_, e := cohort.Recv(c.coll, t.data, 0, 0)
				err = errors.Join(err, e)
			}
		})
		return errors.Join(err, c.Close())
	})
	if err != nil {
		b.Fatal(err)
	}
}
