package cohort_test

import (
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// Rank 0 handles messages in groups, as they arrive.
func ExampleWaitSome() {
	four(func(world *cohort.Comm) error {
		if world.Rank() > 0 {
			return cohort.Send(world, []int{10 * world.Rank()}, 0, 0)
		}
		bufs := make([]int, 3)
		reqs := make([]*cohort.Request, 3)
		for i := range reqs {
			var err error
			if reqs[i], err = cohort.Irecv(world, bufs[i:i+1], i+1, 0); err != nil {
				return err
			}
		}
		sum := 0
		for {
			done, err := cohort.WaitSome(reqs...)
			if err != nil {
				return err
			}
			if len(done) == 0 { // all have been handled
				break
			}
			for _, i := range done {
				sum += bufs[i]
			}
		}
		fmt.Println(sum)
		return nil
	})
	// Output:
	// 60
}

// The same messages are sent around a ring in every step.
func ExampleStartAll() {
	four(func(world *cohort.Comm) error {
		next, prev := (world.Rank()+1)%4, (world.Rank()+3)%4
		out, in := []int{world.Rank()}, make([]int, 1)
		send, err := cohort.SendInit(world, out, next, 0)
		if err != nil {
			return err
		}
		defer send.Close()
		recv, err := cohort.RecvInit(world, in, prev, 0)
		if err != nil {
			return err
		}
		defer recv.Close()
		for range 3 {
			if err := cohort.StartAll(send, recv); err != nil {
				return err
			}
			if err := cohort.WaitAllPersistent(send, recv); err != nil {
				return err
			}
			out[0] = in[0] // passes on what has arrived
		}
		if world.Rank() == 0 {
			fmt.Println(in)
		}
		return nil
	})
	// Output:
	// [1]
}
