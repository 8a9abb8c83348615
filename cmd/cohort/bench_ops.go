package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort"
)

// benchOp is an operation that can be measured.
type benchOp struct {
	name, about string
	ranks       int  // ranks needed
	sizeless    bool // there is no message
	calls       int  // calls in one iteration, where there are several
	// ready prepares what lasts for all batches of one size and returns one iteration. done may be nil.
	ready func(c *cohort.Comm, bytes int) (once, done func() error, err error)
}

// inFlight is the number of messages that each pair of ranks has under way in one iteration of bw.
const inFlight = 64

// batchTime is about how long a batch takes. Tests shorten it.
var batchTime = 20 * time.Millisecond

var benchOps = []benchOp{
	{name: "p2p", about: "Send and Recv between ranks 0 and 1, there and back", ranks: 2, calls: 2, ready: readyP2P},
	{name: "bw", about: fmt.Sprintf("%d Isends from the lower ranks to the upper ones, then answers", inFlight), ranks: 2, calls: inFlight, ready: readyBW},
	{name: "allreduce", about: "Allreduce of float64 with Sum", ready: readyAllreduce},
	{name: "allgatherv", about: "Allgatherv of float64; the size is what each rank sends", ready: readyAllgatherv},
	{name: "reducescatter", about: "ReduceScatter of float64 with Sum; the size is what each sends", ready: readyReduceScatter},
	{name: "alltoall", about: "Alltoall of float64; the size is what each rank sends in all", ready: readyAlltoall},
	{name: "alltoallv", about: "Alltoallv of the same data in blocks of different lengths", ready: readyAlltoallv},
	{name: "bcast", about: "Bcast of float64 from rank 0", ready: readyBcast},
	{name: "barrier", about: "Barrier", sizeless: true, ready: readyBarrier},
	{name: "iallreduce", about: "Iallreduce of float64 with Sum, and Wait", ready: readyIallreduce},
	{name: "pallreduce", about: "Start and Wait of a persistent Allreduce", ready: readyPallreduce},
	{name: "shmwin", about: "a shared window: rank 0 writes, Fence, all read, Fence", ready: readyShmwin},
}

func benchNames() (names []string) {
	for _, o := range benchOps {
		names = append(names, o.name)
	}
	return names
}

func findBench(name string) *benchOp {
	i := slices.IndexFunc(benchOps, func(o benchOp) bool { return o.name == name })
	if i < 0 {
		return nil
	}
	return &benchOps[i]
}

func benchList() string {
	var b strings.Builder
	for _, o := range benchOps {
		fmt.Fprintf(&b, "  %-13s %s\n", o.name, o.about)
	}
	return b.String()
}

// timeOp returns the microseconds one call takes, on rank 0: the median over
// batches. It is the procedure of the C baseline, step by step:
//
//  1. two batches of 4 iterations, the second of which gives the number of
//     iterations that take batchTime (2 to 100 000), agreed by rank 0;
//  2. half a batch to warm up;
//  3. reps batches, each after a barrier; a batch's time is rank 0's for p2p, the
//     slowest rank's for bw, the mean over the ranks for others.
func timeOp(c *cohort.Comm, op *benchOp, bytes, reps int) (usec float64, err error) {
	once, done, err := op.ready(c, bytes)
	if err != nil {
		return 0, err
	}
	if done != nil {
		defer func() {
			if e := done(); err == nil {
				err = e
			}
		}()
	}
	calls := max(op.calls, 1)
	if op.name == "bw" {
		calls *= c.Size() / 2
	}
	timed := func(iters int) (float64, error) {
		if err := c.Barrier(); err != nil {
			return 0, err
		}
		began := time.Now()
		for range iters {
			if err := once(); err != nil {
				return 0, err
			}
		}
		return time.Since(began).Seconds() * 1e6 / float64(iters) / float64(calls), nil
	}
	var one float64
	for range 2 {
		if one, err = timed(4); err != nil {
			return 0, err
		}
	}
	iters := int(float64(batchTime.Microseconds()) / max(one, 0.05))
	if op.name == "bw" {
		iters /= calls
	}
	iters, err = cohort.BcastOne(c, min(max(iters, 2), 100_000), 0)
	if err != nil {
		return 0, err
	}
	if _, err := timed(iters/2 + 1); err != nil {
		return 0, err
	}
	medians := make([]float64, reps)
	for k := range medians {
		mine, err := timed(iters)
		if err != nil {
			return 0, err
		}
		of := cohort.Sum
		if op.name == "bw" {
			of = cohort.Max
		}
		all, err := cohort.ReduceOne(c, mine, of, 0)
		if err != nil {
			return 0, err
		}
		switch op.name {
		case "p2p":
			medians[k] = mine
		case "bw":
			medians[k] = all
		default:
			medians[k] = all / float64(c.Size())
		}
	}
	slices.Sort(medians)
	return medians[reps/2], nil
}

// pageOf returns n zeroed elements at the beginning of a page. Whole pages begin
// on one.
func pageOf[T byte | float64](n, size int) []T {
	const page = 4096
	elems := page / size
	buf := make([]T, (n/elems+1)*elems)
	clear(buf) // so that every page is there before it is timed
	return buf[:n]
}

func readyP2P(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	s, r := pageOf[byte](bytes, 1), pageOf[byte](bytes, 1)
	there := func() error {
		if err := cohort.Send(c, s, 1, 1); err != nil {
			return err
		}
		_, err := cohort.Recv(c, r, 1, 1)
		return err
	}
	back := func() error {
		if _, err := cohort.Recv(c, r, 0, 1); err != nil {
			return err
		}
		return cohort.Send(c, s, 0, 1)
	}
	return halves(c, 1, there, back), nil, nil
}

// readyBW pairs each rank of the lower half with one of the upper half. With an odd number of ranks, the last one has none.
func readyBW(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	half := c.Size() / 2
	peer := (c.Rank() + half) % (2 * half)
	s, r := pageOf[byte](bytes, 1), pageOf[byte](bytes, 1)
	ack := make([]byte, 1)
	q := make([]*cohort.Request, inFlight)
	from := func() (err error) {
		for w := range q {
			if q[w], err = cohort.Isend(c, s, peer, 1); err != nil {
				return err
			}
		}
		if err = cohort.WaitAll(q...); err == nil {
			_, err = cohort.Recv(c, ack, peer, 2)
		}
		return err
	}
	to := func() (err error) {
		for w := range q {
			if q[w], err = cohort.Irecv(c, r, peer, 1); err != nil {
				return err
			}
		}
		if err = cohort.WaitAll(q...); err == nil {
			err = cohort.Send(c, ack, peer, 2)
		}
		return err
	}
	return halves(c, half, from, to), nil, nil
}

// halves returns the part of a rank: that of the first half ranks, that of as many others, or none.
func halves(c *cohort.Comm, half int, lower, upper func() error) func() error {
	switch c.Rank() / half {
	case 0:
		return lower
	case 1:
		return upper
	}
	return func() error { return nil }
}

func readyAllreduce(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	s, r := pageOf[float64](bytes/8, 8), pageOf[float64](bytes/8, 8)
	return func() error { return cohort.Allreduce(c, s, r, cohort.Sum) }, nil, nil
}

func readyAllgatherv(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	n := bytes / 8
	s, r := pageOf[float64](n, 8), pageOf[float64](n*c.Size(), 8)
	counts := slices.Repeat([]int{n}, c.Size())
	return func() error { return cohort.Allgatherv(c, s, r, counts, nil) }, nil, nil
}

// readyReduceScatter divides the vector as evenly as possible.
func readyReduceScatter(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	n := bytes / 8
	counts := make([]int, c.Size())
	for r := range counts {
		counts[r] = n*(r+1)/c.Size() - n*r/c.Size()
	}
	s, r := pageOf[float64](n, 8), pageOf[float64](counts[c.Rank()], 8)
	return func() error { return cohort.ReduceScatter(c, s, r, counts, cohort.Sum) }, nil, nil
}

func readyAlltoall(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	n := max(1, bytes/8/c.Size()) * c.Size()
	s, r := pageOf[float64](n, 8), pageOf[float64](n, 8)
	return func() error { return cohort.Alltoall(c, s, r) }, nil, nil
}

// readyAlltoallv has the block from rank i to rank j be longer or shorter than the mean by a half, as i+j is even or odd.
func readyAlltoallv(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	mean := max(1, bytes/8/c.Size())
	counts, n := make([]int, c.Size()), 0
	for r := range counts {
		counts[r] = mean - mean/2
		if (r+c.Rank())%2 == 0 {
			counts[r] = mean + mean/2
		}
		n += counts[r]
	}
	s, r := pageOf[float64](n, 8), pageOf[float64](n, 8)
	return func() error { return cohort.Alltoallv(c, s, counts, nil, r, counts, nil) }, nil, nil
}

func readyBcast(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	s := pageOf[float64](bytes/8, 8)
	return func() error { return cohort.Bcast(c, s, 0) }, nil, nil
}

func readyBarrier(c *cohort.Comm, _ int) (once, done func() error, err error) {
	return c.Barrier, nil, nil
}

func readyIallreduce(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	s, r := pageOf[float64](bytes/8, 8), pageOf[float64](bytes/8, 8)
	return func() error {
		q, err := cohort.Iallreduce(c, s, r, cohort.Sum)
		if err == nil {
			_, err = q.Wait()
		}
		return err
	}, nil, nil
}

func readyPallreduce(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	s, r := pageOf[float64](bytes/8, 8), pageOf[float64](bytes/8, 8)
	p, err := cohort.AllreduceInit(c, s, r, cohort.Sum)
	if err != nil {
		return nil, nil, err
	}
	return func() error {
		_, err := p.Run()
		return err
	}, p.Close, nil
}

// readyShmwin has all of the window in rank 0's part.
func readyShmwin(c *cohort.Comm, bytes int) (once, done func() error, err error) {
	s, r := pageOf[byte](bytes, 1), pageOf[byte](bytes, 1)
	n := 0
	if c.Rank() == 0 {
		n = bytes
	}
	w, err := cohort.AllocateShared[byte](c, n)
	if err != nil {
		return nil, nil, err
	}
	base, err := w.Remote(0)
	if err != nil {
		return nil, nil, err
	}
	return func() error {
		if c.Rank() == 0 {
			copy(base, s)
		}
		if err := w.Fence(); err != nil {
			return err
		}
		copy(r, base)
		return w.Fence()
	}, w.Close, nil
}
