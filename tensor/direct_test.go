package tensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// With Direct "on", device memory goes directly to the library in all operations that support it,
// with the same results.
func TestDirectDeviceMemory(t *testing.T) {
	onRanks(t, []int{1, 3}, func(_ *testing.T, world *cohort.Comm) error { return directly(world) })
	onProcesses(t, []int{2}, "direct")
}

func init() { programs["direct"] = directly }

func directly(world *cohort.Comm) error {
	l, err := newLab(world, Config{Chunk: 64 << 10, Direct: "on"}, soft.Config{HostCanRead: true})
	if err != nil {
		return err
	}
	for _, n := range []int{5, 20000} {
		err = errors.Join(err, tryAll(l, placements[1], reals[float64](), n), tryAll(l, placements[1], halves(cohort.ToFloat16), n))
	}
	err = errors.Join(err, tryAll(l, placements[2], integers[int32](-2), 20000))
	if err != nil {
		return l.close(err)
	}
	const n = 20000 // several pieces
	a, err := NewOn[float64](l.devs[0], n)
	b, err2 := NewOn[float64](l.devs[0], l.size*n)
	d, err3 := NewOn[float64](l.devs[0], l.size, n)
	e, err4 := NewOn[float64](l.devs[0], l.size*n)
	must.OK(errors.Join(err, err2, err3, err4))
	mpi := world.Backend() == "mpi"
	has := func(coll backend.Coll) bool {
		return !mpi || world.Devices().Direct(coll, backend.OpSum, backend.Float64, 8*n)
	}
	peer := (l.rank + 1) % l.size
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range []struct {
		name   string
		do     func() error
		direct bool
	}{
		{"Bcast", func() error { return Bcast(l.c, a, 0) }, has(backend.Bcast)},
		{"Allreduce", func() error { return Allreduce(l.c, a, a, Sum) }, has(backend.Allreduce)},
		{"Allreduce max", func() error { return Allreduce(l.c, a, a, Max) }, !mpi},
		{"Allreduce with a context", func() error { return Allreduce(l.c.WithContext(ctx), a, a, Sum) }, !mpi},
		{"Allreduce average", func() error { return Allreduce(l.c, a, a, Average) }, false},
		{"Allgather", func() error { return Allgather(l.c, a, b) }, has(backend.Allgatherv)},
		{"Alltoall", func() error { return Alltoall(l.c, b, e) }, has(backend.Alltoallv)},
		{"Alltoall in place", func() error { return Alltoall(l.c, b, b) }, !mpi},
		{"ReduceScatter", func() error { return ReduceScatter(l.c, b, a, Sum) }, false},
		{"Sendrecv", func() error {
			_, err := Sendrecv(l.c, a, peer, 1, a2(d, l.rank, n), (l.rank+l.size-1)%l.size, 1)
			return err
		}, !mpi || l.size > 1},
	} {
		was := l.drv.Stats()
		if err := c.do(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if is := l.drv.Stats(); (is.ToHost == was.ToHost && is.ToDevice == was.ToDevice) != c.direct {
			err = errors.Join(err, fmt.Errorf("%s: %v and %v are copied, before %v and %v, want none: %v", c.name, is.ToHost, is.ToDevice, was.ToHost, was.ToDevice, c.direct))
		}
	}
	return l.close(errors.Join(err, a.Close(), b.Close(), d.Close(), e.Close()))
}

// a2 returns row i of a matrix.
func a2(d *Tensor[float64], i, n int) *Tensor[float64] {
	t, err := d.Sub(0, i, i+1)
	if err == nil {
		t, err = t.Reshape(n)
	}
	if err != nil {
		panic(err)
	}
	return t
}

// By default, and with Direct "off", device memory is never passed to a backend that does not
// accept it.
func TestDeviceMemoryIsStagedByDefault(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		for _, cfg := range []Config{{}, {Direct: "off"}} {
			l, err := newLab(world, cfg, soft.Config{}) // whose memory faults when the host reads it
			if err != nil {
				return err
			}
			if l.c.direct {
				err = fmt.Errorf("%+v: device memory is given to backend %s", cfg, world.Backend())
			}
			if err = l.close(errors.Join(err, tryAll(l, placements[1], reals[float64](), 3000))); err != nil {
				return err
			}
		}
		return nil
	})
}

// Below thread level multiple, device memory is never passed to an MPI library, whatever the
// setting: a message that waits may be received by the backend's own code, which copies with the
// processor.
func TestDirectNeedsThreadMultiple(t *testing.T) {
	levels := []string{"serialized", "multiple", "funneled"}
	if testing.Short() {
		levels = levels[:2]
	}
	for _, level := range levels {
		onMPI(t, []int{2}, []string{asProgram + "=direct at a thread level", "COHORT_MPI_THREAD=" + level})
	}
}

func init() {
	programs["direct at a thread level"] = func(world *cohort.Comm) error {
		c, err := NewComm(world, &Config{Direct: "on"})
		if err != nil {
			return err
		}
		level := world.Caps().ThreadLevel
		if c.direct != (level == "multiple") || level != os.Getenv("COHORT_MPI_THREAD") {
			err = fmt.Errorf("at the thread level %s device memory is given to the library: %v", level, c.direct)
		}
		return errors.Join(err, c.Close())
	}
}

// Direct operations also come after the work in the tensor's stream, with and without a deadline.
func TestDirectFollowsStreamOrder(t *testing.T) {
	for _, limits := range []bool{false, true} {
		for _, n := range []int{200, 3000} { // one piece, longer than an envelope, and several
			t.Run(fmt.Sprintf("%d,limits=%v", n, limits), func(t *testing.T) {
				onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
					l := must.Get(newLab(world, Config{Chunk: 8 << 10, Direct: "on"}, soft.Config{HostCanRead: true}))
					c := l.c
					if limits {
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						c = c.WithContext(ctx)
					}
					return l.close(inOrder(l, c, n))
				})
			})
		}
	}
}

func inOrder(l *lab, c *Comm, n int) error {
	type tensor = *Tensor[float64]
	v, peer := reals[float64](), 1-l.rank
	sum, root, other := v.reduced(v.ops()[0], l.size, 0, n), v.vector(0, 0, n), v.vector(peer, 0, n)
	allreduce := func(in, out tensor) error { return Allreduce(c, in, out, Sum) }
	sendrecv := func(in, out tensor) error { _, err := Sendrecv(c, in, peer, 1, out, peer, 1); return err }
	for _, k := range []struct {
		name    string
		in, out bool // on the device; with both, the same tensor
		do      func(in, out tensor) error
		want    []float64
	}{
		{"Allreduce, what it reads", true, false, allreduce, sum},
		{"Allreduce, what it writes", false, true, allreduce, sum},
		{"Allreduce in place", true, true, allreduce, sum},
		{"Bcast", true, true, func(in, _ tensor) error { return Bcast(c, in, 0) }, root},
		{"Sendrecv, what it reads", true, false, sendrecv, other},
		{"Sendrecv, what it writes", false, true, sendrecv, other},
	} {
		in, out := of(v.vector(l.rank, 0, n), []int{n}), zeros[float64](n)
		x, free, err := onOwnStream(l.devs[0], make([]float64, n))
		if err != nil {
			return err
		}
		if k.out {
			out = x
		}
		data := slices.Repeat([]float64{-1}, n) // which the operation overwrites
		if k.in {
			data, in = in.Data(), x
		}
		// The work is done when the operation begins to wait for it, or else too late.
		let := make(chan struct{})
		begin := sync.OnceFunc(func() { close(let) })
		if err := late(x, let, func(f []float64) { copy(f, data) }); err != nil {
			return err
		}
		before := l.drv.Stats()
		l.drv.SetFail(func(call soft.Call) error {
			if call.Op == soft.EventSync || call.Op == soft.Done || call.Op == soft.Sync {
				begin()
			}
			return nil
		})
		err = k.do(in, out)
		l.drv.SetFail(nil)
		begin()
		if now := l.drv.Stats(); now.ToHost != before.ToHost || now.ToDevice != before.ToDevice {
			err = errors.Join(err, errors.New("memory of the device was copied"))
		}
		got, err2 := out.To(CPU)
		if err = errors.Join(err, err2); err == nil && !slices.Equal(got.Data(), k.want) {
			err = fmt.Errorf("it left %v, want %v", got.Data()[:5], k.want[:5])
		}
		if err = errors.Join(err, free()); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}
