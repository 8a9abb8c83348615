// Command predict compares the times that package loggp predicts with measured ones, on 2 ranks to all of
// the job. It fits the machine from messages between two ranks of the same run:
//
//	COHORT_TCP_SHM=0 go run ./cmd/cohort run -n 8 --backend tcp ./bench/predict
//
// It measures persistent collectives, which are schedules and nothing else. The machine should do nothing
// beside it.
package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/bench/internal/loggp"
	"github.com/cohort-hpc/cohort/internal/coll"
	"github.com/cohort-hpc/cohort/topo"
)

const (
	runs    = 10 // calls one after the other, measured and simulated alike
	batches = 15 // of which the median counts
)

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error { return compare(world) })
}

func compare(world *cohort.Comm) error {
	if world.Size() < 2 {
		return fmt.Errorf("%d rank: want at least 2", world.Size())
	}
	m, err := fit(world)
	if err != nil {
		return err
	}
	within, total := 0, 0
	for n := 2; n <= world.Size(); n++ {
		color := cohort.Undefined
		if world.Rank() < n {
			color = 0
		}
		c, err := world.Split(color, 0)
		if err != nil {
			return err
		}
		if c != nil {
			for _, k := range []backend.Coll{backend.Bcast, backend.Reduce, backend.Allreduce, backend.Allgather, backend.Alltoall} {
				for _, bytes := range []int{8 * n, 4096 * n, 65536 * n} {
					ratio, err := one(c, m, k, bytes)
					if err != nil {
						return err
					}
					if total++; math.Abs(ratio-1) <= 0.3 {
						within++
					}
				}
			}
			if err := c.Close(); err != nil {
				return err
			}
		}
		if err := world.Barrier(); err != nil {
			return err
		}
	}
	if world.Rank() == 0 {
		fmt.Printf("%d of %d predictions are within 30 %% of the measured time\n", within, total)
	}
	return nil
}

// fit returns the machine. Ranks 0 and 1 send each other messages while the others sleep. If there are more
// pairs of ranks than processors, all pairs do so at once, too: then the processors are always busy, and the
// times are those of the processors.
func fit(c *cohort.Comm) (*loggp.Machine, error) {
	cores, err := processors(c)
	if err != nil {
		return nil, err
	}
	alone, err := exchange(c, 1)
	if err != nil {
		return nil, err
	}
	m := &loggp.Machine{Ranks: c.Size(), Cores: cores}
	l := &m.Inside
	l.Gap = alone.stream
	l.O = min(alone.stream, alone.short/2)
	l.PerByte = (alone.long - alone.short) / long
	if pairs := c.Size() / 2; pairs > cores {
		all, err := exchange(c, pairs)
		if err != nil {
			return nil, err
		}
		share := float64(cores) / float64(2*pairs)
		l.O = min(l.O, all.short*share)
		l.PerByte = (all.long - all.short) * share / long
	}
	l.L = alone.short - 2*l.O
	l.PerByte = max(0, l.PerByte)
	x, y := make([]float64, long/8), make([]float64, long/8)
	m.Copy = local(func() { copy(x, y) }) / long
	m.Reduce = local(func() {
		for i, v := range y {
			x[i] += v
		}
	}) / long
	// All ranks use what rank 0 has measured.
	v := []float64{l.O, l.L, l.PerByte, m.Copy, m.Reduce, l.Gap}
	if err := cohort.Bcast(c, v, 0); err != nil {
		return nil, err
	}
	l.O, l.L, l.PerByte, m.Copy, m.Reduce, l.Gap = v[0], v[1], v[2], v[3], v[4], v[5]
	if c.Rank() == 0 {
		fmt.Printf("%s, %d cores: O %.3g µs, L %.3g µs, gap %.3g µs, a byte %.3g ns, copied %.3g ns, reduced %.3g ns\n",
			c.Backend(), m.Cores, l.O*1e6, l.L*1e6, l.Gap*1e6, l.PerByte*1e9, m.Copy*1e9, m.Reduce*1e9)
		fmt.Printf("%5s %-30s %9s %12s %12s %6s\n", "ranks", "algorithm", "bytes", "predicted µs", "measured µs", "ratio")
	}
	return m, nil
}

const long = 128 << 10

// messages are the times of a short and a long message, and of one of many short ones.
type messages struct{ short, long, stream float64 }

// exchange has the first pairs of ranks send each other messages.
func exchange(c *cohort.Comm, pairs int) (t messages, err error) {
	buf := make([]byte, long)
	for _, x := range []struct {
		time         *float64
		bytes, count int
	}{{&t.short, 8, 1}, {&t.long, long, 1}, {&t.stream, 8, 64}} {
		b, reqs := buf[:x.bytes], make([]*cohort.Request, x.count)
		seconds, err := median(c, func() (err error) {
			first := c.Rank()%2 == 0
			if c.Rank() >= 2*pairs {
				return nil
			}
			for range runs {
				for _, out := range []bool{first, !first} {
					for k := range reqs {
						if out {
							reqs[k], err = cohort.Isend(c, b, c.Rank()^1, k)
						} else {
							reqs[k], err = cohort.Irecv(c, b, c.Rank()^1, k)
						}
						if err != nil {
							return err
						}
					}
					if err := cohort.WaitAll(reqs...); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return t, err
		}
		*x.time = seconds / runs / 2 / float64(x.count)
	}
	return t, nil
}

// processors returns how many processors the ranks have together. Each may be pinned to some of them.
func processors(c *cohort.Comm) (int, error) {
	node, err := topo.Here()
	if err != nil {
		return 0, err
	}
	all, _, err := cohort.AllgathervAppend(c, nil, node.CPUs)
	return len(topo.NewCPUSet(all...)), err
}

// local returns the least time of a call.
func local(f func()) float64 {
	least := math.Inf(1)
	for range batches {
		began := time.Now()
		f()
		least = min(least, time.Since(began).Seconds())
	}
	return least
}

// median returns the median time of batches on rank 0, each after a barrier.
func median(c *cohort.Comm, batch func() error) (float64, error) {
	times := make([]float64, batches)
	for i := range times {
		if err := c.Barrier(); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := batch(); err != nil {
			return 0, err
		}
		times[i] = time.Since(began).Seconds()
	}
	slices.Sort(times)
	return times[batches/2], nil
}

// one compares one call, with bytes as loggp.Call counts them, and returns predicted by measured time.
func one(c *cohort.Comm, m *loggp.Machine, k backend.Coll, bytes int) (float64, error) {
	n := c.Size()
	if k == backend.Alltoall {
		bytes /= n
	}
	call := loggp.Call(k, n, bytes)
	in, out := make([]float64, call.Count*n), make([]float64, call.Count*n)
	own, all := in[:call.Count], out[:call.Count]
	var p *cohort.Persistent
	var err error
	switch k {
	case backend.Bcast:
		p, err = cohort.BcastInit(c, own, 0)
	case backend.Reduce:
		p, err = cohort.ReduceInit(c, own, all, cohort.Sum, 0)
	case backend.Allreduce:
		p, err = cohort.AllreduceInit(c, own, all, cohort.Sum)
	case backend.Allgather:
		p, err = cohort.AllgatherInit(c, own, out)
	case backend.Alltoall:
		p, err = cohort.AlltoallInit(c, in, out)
	}
	if err != nil {
		return 0, err
	}
	measured, err := median(c, func() error {
		for range runs {
			if err := p.Start(); err != nil {
				return err
			}
			if _, err := p.Wait(); err != nil {
				return err
			}
		}
		return c.Barrier() // until the last rank has ended
	})
	if err != nil {
		return 0, err
	}
	barrier, err := median(c, c.Barrier)
	if err != nil {
		return 0, err
	}
	if err := p.Close(); err != nil {
		return 0, err
	}
	measured = (measured - barrier) / runs
	names, err := coll.Algorithms(call, 0, n, nil)
	if err != nil {
		return 0, err
	}
	program, err := loggp.NewProgram(n, n, math.MaxInt, func(rank int) (*coll.Schedule, error) {
		return coll.BuildAs(names[0], call, rank, n, nil)
	})
	if err != nil {
		return 0, err
	}
	predicted, err := program.Time(m, runs)
	if err != nil {
		return 0, err
	}
	predicted /= runs
	if c.Rank() == 0 {
		fmt.Printf("%5d %-30s %9d %12.1f %12.1f %6.2f\n", n, names[0], bytes, predicted*1e6, measured*1e6, predicted/measured)
	}
	return predicted / measured, nil
}
