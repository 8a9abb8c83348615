package cohort_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort"
)

// A program started without a launcher is a world of one rank; under cohort run
// the same program is one rank of many.
func ExampleInit() {
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer world.Close()
	fmt.Printf("rank %d of %d\n", world.Rank(), world.Size())
	// Output:
	// rank 0 of 1
}

// four runs body as four ranks of this process.
func four(body func(world *cohort.Comm) error) {
	if err := cohort.Run(context.Background(), 4, body); err != nil {
		fmt.Println(err)
	}
}

func ExampleRun() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		sum, err := cohort.AllreduceOne(world, world.Rank(), cohort.Sum)
		if world.Rank() == 0 {
			fmt.Printf("%d ranks, sum %d\n", world.Size(), sum)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 4 ranks, sum 6
}

// An error of one rank ends what the others are waiting for, and comes first.
func ExampleRun_failure() {
	errNoInput := errors.New("no input")
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		if world.Rank() == 2 {
			return errNoInput
		}
		err := world.Barrier()
		if !errors.Is(err, cohort.ErrPeerLost) {
			return err
		}
		return nil // rank 2 says why
	})
	fmt.Println(err, errors.Is(err, errNoInput))
	// Output:
	// rank 2: no input true
}

func ExampleSend() {
	four(func(world *cohort.Comm) error {
		const tag = 7
		if world.Rank() == 3 {
			return cohort.Send(world, []float64{1.5, 2.5}, 0, tag)
		}
		if world.Rank() == 0 {
			buf := make([]float64, 10) // longer than the message is fine
			st, err := cohort.Recv(world, buf, cohort.AnySource, tag)
			if err != nil {
				return err
			}
			fmt.Println(buf[:cohort.Count[float64](st)], "from rank", st.Source)
		}
		return nil
	})
	// Output:
	// [1.5 2.5] from rank 3
}

// Structs without pointers are elements like any other.
func ExampleRecv() {
	type Body struct {
		Pos, Vel [3]float64
		ID       int32
	}
	four(func(world *cohort.Comm) error {
		switch world.Rank() {
		case 1:
			return cohort.Send(world, []Body{{ID: 5, Pos: [3]float64{1, 2, 3}}}, 0, 0)
		case 0:
			var b [1]Body
			if _, err := cohort.Recv(world, b[:], 1, 0); err != nil {
				return err
			}
			fmt.Println(b[0].ID, b[0].Pos)
		}
		return nil
	})
	// Output:
	// 5 [1 2 3]
}

// Ssend returns when a receive has matched, so that the order is certain here.
func ExampleSsend() {
	four(func(world *cohort.Comm) error {
		switch world.Rank() {
		case 0:
			err := cohort.Ssend(world, []byte("ready"), 1, 0)
			fmt.Println("received")
			return err
		case 1:
			text, _, err := cohort.RecvAppend[byte](world, nil, 0, 0)
			if string(text) != "ready" {
				fmt.Println("received something else:", string(text))
			}
			return err
		}
		return nil
	})
	// Output:
	// received
}

func ExampleIsend() {
	four(func(world *cohort.Comm) error {
		next, prev := (world.Rank()+1)%4, (world.Rank()+3)%4
		got := make([]int, 1)
		recv, err := cohort.Irecv(world, got, prev, 0)
		if err != nil {
			return err
		}
		send, err := cohort.Isend(world, []int{world.Rank() * 10}, next, 0)
		if err != nil {
			return err
		}
		// Work that does not need the messages goes here.
		if err := cohort.WaitAll(send, recv); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(got)
		}
		return nil
	})
	// Output:
	// [30]
}

func ExampleSendrecv() {
	four(func(world *cohort.Comm) error {
		partner := world.Rank() ^ 1 // 0 with 1, 2 with 3
		got := make([]int, 1)
		_, err := cohort.Sendrecv(world, []int{world.Rank()}, partner, 0, got, partner, 0)
		if world.Rank() == 0 {
			fmt.Println(got)
		}
		return err
	})
	// Output:
	// [1]
}

// Every rank computes while its message and that of its neighbor are on their way.
func ExampleIsendrecv() {
	four(func(world *cohort.Comm) error {
		me, n := world.Rank(), world.Size()
		send, recv := []int{me * me}, make([]int, 1)
		req, err := cohort.Isendrecv(world, send, (me+1)%n, 0, recv, (me+n-1)%n, 0)
		if err != nil {
			return err
		}
		square := me * me // does not need the neighbor's number
		if _, err := req.Wait(); err != nil {
			return err
		}
		if me == 3 {
			fmt.Println(recv[0], "before", square)
		}
		return nil
	})
	// Output:
	// 4 before 9
}

func ExampleRecvAppend() {
	four(func(world *cohort.Comm) error {
		if world.Rank() > 0 {
			return cohort.Send(world, make([]int, world.Rank()), 0, 0)
		}
		for source := 1; source < 4; source++ {
			msg, _, err := cohort.RecvAppend[int](world, nil, source, 0)
			if err != nil {
				return err
			}
			fmt.Println(len(msg), "from rank", source)
		}
		return nil
	})
	// Output:
	// 1 from rank 1
	// 2 from rank 2
	// 3 from rank 3
}

func ExampleComm_Mprobe() {
	four(func(world *cohort.Comm) error {
		if world.Rank() == 2 {
			return cohort.Send(world, []int{4, 5, 6}, 0, 9)
		}
		if world.Rank() == 0 {
			msg, st, err := world.Mprobe(cohort.AnySource, cohort.AnyTag)
			if err != nil {
				return err
			}
			buf := make([]int, cohort.Count[int](st)) // the message is this goroutine's alone
			_, err = cohort.MessageRecv(msg, buf)
			fmt.Println(buf, "tag", st.Tag)
			return err
		}
		return nil
	})
	// Output:
	// [4 5 6] tag 9
}

// A deadline ends an operation; the communicator stays usable.
func ExampleComm_WithContext() {
	four(func(world *cohort.Comm) error {
		if world.Rank() == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			defer cancel()
			_, err := cohort.Recv(world.WithContext(ctx), make([]int, 1), 1, 0)
			fmt.Println(errors.Is(err, cohort.ErrTimeout))
		}
		return world.Barrier()
	})
	// Output:
	// true
}

// The first message that comes is handled first.
func ExampleWaitAny() {
	four(func(world *cohort.Comm) error {
		if world.Rank() > 0 {
			return cohort.Send(world, []int{world.Rank()}, 0, 0)
		}
		var reqs []*cohort.Request
		bufs := make([]int, 4)
		for r := 1; r < 4; r++ {
			q, err := cohort.Irecv(world, bufs[r:r+1], r, 0)
			if err != nil {
				return err
			}
			reqs = append(reqs, q)
		}
		for {
			i, st, err := cohort.WaitAny(reqs...)
			if err != nil {
				return err
			}
			if i < 0 { // none is left
				break
			}
			bufs[0] += bufs[st.Source]
		}
		fmt.Println(bufs[0])
		return nil
	})
	// Output:
	// 6
}

func ExampleRequest_Test() {
	four(func(world *cohort.Comm) error {
		sum := make([]int, 1)
		q, err := cohort.Iallreduce(world, []int{1}, sum, cohort.Sum)
		if err != nil {
			return err
		}
		for {
			_, done, err := q.Test()
			if err != nil {
				return err
			}
			if done {
				break
			}
			// A piece of other work goes here.
		}
		if world.Rank() == 0 {
			fmt.Println(sum)
		}
		return nil
	})
	// Output:
	// [4]
}

// Rank 0 takes whichever comes first: a message, or the end of its patience.
func ExampleRequest_Done() {
	four(func(world *cohort.Comm) error {
		if world.Rank() == 3 {
			return cohort.Send(world, []int{33}, 0, 0)
		}
		if world.Rank() != 0 {
			return nil
		}
		buf := make([]int, 1)
		req, err := cohort.Irecv(world, buf, 3, 0)
		if err != nil {
			return err
		}
		select {
		case <-req.Done():
			_, err := req.Wait() // does not wait
			fmt.Println("received", buf[0])
			return err
		case <-time.After(time.Minute):
			return req.Cancel()
		}
	})
	// Output:
	// received 33
}

// The arguments are fixed once; each Start sends what the buffer holds then.
func ExampleSendInit() {
	four(func(world *cohort.Comm) error {
		if world.Rank() > 1 {
			return nil
		}
		buf := make([]int, 1)
		var op *cohort.Persistent
		var err error
		if world.Rank() == 0 {
			op, err = cohort.RecvInit(world, buf, 1, 0)
		} else {
			op, err = cohort.SendInit(world, buf, 0, 0)
		}
		if err != nil {
			return err
		}
		defer op.Close()
		for step := range 3 {
			if world.Rank() == 1 {
				buf[0] = step * step
			}
			if err := op.Start(); err != nil {
				return err
			}
			if _, err := op.Wait(); err != nil {
				return err
			}
			if world.Rank() == 0 {
				fmt.Println(buf)
			}
		}
		return nil
	})
	// Output:
	// [0]
	// [1]
	// [4]
}

func ExampleComm_Split() {
	four(func(world *cohort.Comm) error {
		row, err := world.Split(world.Rank()/2, 0) // ranks 0 and 1, and 2 and 3
		if err != nil {
			return err
		}
		sum, err := cohort.AllreduceOne(row, world.Rank(), cohort.Sum)
		if world.Rank() == 2 {
			fmt.Printf("rank %d of %d in its row, sum %d\n", row.Rank(), row.Size(), sum)
		}
		return err
	})
	// Output:
	// rank 0 of 2 in its row, sum 5
}

func ExampleComm_CreateGroup() {
	four(func(world *cohort.Comm) error {
		odd, err := world.Group().Incl(3, 1)
		if err != nil || odd.Rank() == cohort.Undefined {
			return err // ranks 0 and 2 take no part
		}
		c, err := world.CreateGroup(odd, 0)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("rank %d is the first of %d\n", world.Rank(), c.Size())
		}
		return nil
	})
	// Output:
	// rank 3 is the first of 2
}

func ExampleComm_CartCreate() {
	four(func(world *cohort.Comm) error {
		grid, err := world.CartCreate([]int{2, 2}, []bool{false, true}, false)
		if err != nil {
			return err
		}
		if grid.Rank() == 3 {
			n := grid.Neighbors()
			fmt.Println("at", grid.MyCoords(), "above", n[0].Lower, "below", n[0].Upper == cohort.ProcNull, "left and right", n[1].Lower, n[1].Upper)
		}
		return nil
	})
	// Output:
	// at [1 1] above 1 below true left and right 2 2
}

// A reduction of the program's own: the composition of x → a*x + b, which does
// not commute.
func ExampleNewOp() {
	type affine struct{ A, B int }
	compose := cohort.NewOp(false, func(in, inout []affine) {
		for i, f := range in { // first f, then g
			g := inout[i]
			inout[i] = affine{g.A * f.A, g.A*f.B + g.B}
		}
	})
	four(func(world *cohort.Comm) error {
		f, err := cohort.ReduceOne(world, affine{2, world.Rank()}, compose, 0)
		if world.Rank() == 0 {
			fmt.Println(f)
		}
		return err
	})
	// Output:
	// {16 11}
}

// The flight recorder keeps when each rank was in which part. After cohort run --flight FOLDER,
// cohort report --trace FILE shows it as a timeline.
func ExampleComm_Region() {
	four(func(world *cohort.Comm) error {
		assemble := world.Region("assemble")
		x := float64(world.Rank())
		assemble.End()

		defer world.Region("solve").End()
		sum, err := cohort.AllreduceOne(world, x, cohort.Sum)
		if world.Rank() == 0 {
			fmt.Println(sum)
		}
		return err
	})
	// Output:
	// 6
}
