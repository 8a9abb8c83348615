package cohort_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort"
)

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
		err = cohort.WaitAll(send, recv)
		if err == nil && world.Rank() == 0 {
			fmt.Println(got)
		}
		return err
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

// Synchronous sends are complete when a receive has matched them, nonblocking and persistent ones too.
func ExampleIssend() {
	four(func(world *cohort.Comm) error {
		switch world.Rank() {
		case 0:
			if err := waited(cohort.Issend(world, []int{1}, 1, 0)); err != nil {
				return err
			}
			return ranOnce(cohort.SsendInit(world, []int{2}, 1, 0))
		case 1:
			buf := make([]int, 2)
			_, err := cohort.Recv(world, buf[:1], 0, 0)
			if err == nil {
				_, err = cohort.Recv(world, buf[1:], 0, 0)
			}
			fmt.Println(buf)
			return err
		}
		return nil
	})
	// Output:
	// [1 2]
}

// Rank 0 looks at messages before it receives them.
func ExampleComm_Probe() {
	four(func(world *cohort.Comm) error {
		if world.Rank() == 2 {
			return errors.Join(cohort.Send(world, []int16{4, 5, 6}, 0, 9), cohort.Send(world, []int16{7}, 0, 1))
		}
		if world.Rank() != 0 {
			return nil
		}
		st, err := world.Probe(2, 9)
		if err != nil {
			return err
		}
		fmt.Println(st.Bytes(), "bytes")
		for there := false; !there; { // Iprobe does not wait
			if _, there, err = world.Iprobe(2, 1); err != nil {
				return err
			}
		}
		buf := make([]int16, cohort.Count[int16](st))
		if st, err = cohort.Recv(world, buf, st.Source, st.Tag); err == nil {
			fmt.Println(buf, "tag", st.Tag)
			st, err = cohort.Recv(world, buf[:1], 2, cohort.AnyTag)
			fmt.Println(buf[:1], "tag", st.Tag)
		}
		return err
	})
	// Output:
	// 6 bytes
	// [4 5 6] tag 9
	// [7] tag 1
}

// Improbe takes a message only if one is there.
func ExampleComm_Improbe() {
	four(func(world *cohort.Comm) error {
		if world.Rank() > 0 {
			return cohort.Send(world, []int{10 * world.Rank()}, 0, 0)
		}
		sum := 0
		for left := 3; left > 0; {
			msg, _, there, err := world.Improbe(cohort.AnySource, 0)
			if err != nil {
				return err
			}
			if !there {
				continue // other work goes here
			}
			buf := make([]int, 1)
			if err := waited(cohort.ImessageRecv(msg, buf)); err != nil {
				return err
			}
			sum += buf[0]
			left--
		}
		fmt.Println(sum)
		return nil
	})
	// Output:
	// 60
}

// Three ways to look whether requests are complete without waiting for them.
func ExampleTestAll() {
	four(func(world *cohort.Comm) error {
		if world.Rank() > 0 {
			return cohort.Send(world, []int{world.Rank()}, 0, 0)
		}
		buf, reqs := make([]int, 3), make([]*cohort.Request, 3)
		for i := range buf {
			var err error
			if reqs[i], err = cohort.Irecv(world, buf[i:i+1], i+1, 0); err != nil {
				return err
			}
		}
		for one := false; !one; { // one of them
			var err error
			if _, _, one, err = cohort.TestAny(reqs...); err != nil {
				return err
			}
		}
		if _, err := cohort.TestSome(reqs...); err != nil { // those that are complete now
			return err
		}
		for all := false; !all; { // the rest
			var err error
			if all, err = cohort.TestAll(reqs...); err != nil {
				return err
			}
		}
		fmt.Println(buf)
		return nil
	})
	// Output:
	// [1 2 3]
}

// A library that receives messages for its users makes their Status.
func ExampleNewStatus() {
	st := cohort.NewStatus(2, 7, 16)
	size, err := cohort.SizeOf[[2]float32]()
	fmt.Println("rank", st.Source, "sent", cohort.Count[[2]float32](st), "elements of", size, "bytes", err)
	// Output:
	// rank 2 sent 2 elements of 8 bytes <nil>
}
