package tensor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// is returns an error unless err wraps a sentinel and contains all words.
func is(err, sentinel error, words ...string) error {
	if !errors.Is(err, sentinel) {
		return fmt.Errorf("got error %v, want %v", err, sentinel)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("the error %q does not say %q", err, w)
		}
	}
	return nil
}

func zeros[T cohort.Number](n ...int) *Tensor[T] { return must.Get(New[T](n...)) }

// wrongs are calls that are wrong on every rank. In the words, {n} is the number of ranks.
var wrongs = []struct {
	name string
	call func(c *Comm) error
	want error
	says []string
}{
	{"shapes of Allreduce", func(c *Comm) error { return Allreduce(c, zeros[float32](2, 3), zeros[float32](3, 2), Sum) },
		cohort.ErrCount, []string{"tensor: allreduce: ", "float32[2 3] on cpu", "float32[3 2] on cpu"}},
	{"shapes of Reduce", func(c *Comm) error { return Reduce(c, zeros[int8](2), zeros[int8](3), Sum, c.Rank()) },
		cohort.ErrCount, []string{"int8[2]", "int8[3]"}},
	{"root of Bcast", func(c *Comm) error { return Bcast(c, zeros[float32](2), c.Size()) }, cohort.ErrRoot, []string{"tensor: bcast: ", "root {n} of {n}"}},
	{"root of Reduce", func(c *Comm) error { return Reduce(c, zeros[float32](2), nil, Sum, -1) }, cohort.ErrRoot, []string{"root -1"}},
	{"nil", func(c *Comm) error { return Bcast[float32](c, nil, 0) }, cohort.ErrBuffer, []string{"nil"}},
	{"nil recv", func(c *Comm) error { return Allreduce(c, zeros[float32](2), nil, Sum) }, cohort.ErrBuffer, []string{"nil"}},
	{"nil send", func(c *Comm) error { return Allreduce(c, nil, zeros[float32](2), Sum) }, cohort.ErrBuffer, []string{"nil"}},
	{"Allgather", func(c *Comm) error { return Allgather(c, zeros[float32](2, 5), zeros[float32](5, 4)) },
		cohort.ErrCount, []string{"float32[2 5]", "float32[5 4]", "{n}, the number of ranks"}},
	{"Allgather of a number", func(c *Comm) error { return Allgather(c, zeros[float32](), zeros[float32]()) }, cohort.ErrCount, nil},
	{"ReduceScatter", func(c *Comm) error { return ReduceScatter(c, zeros[float32](5, 5), zeros[float32](2, 5), Sum) },
		cohort.ErrCount, []string{"tensor: reducescatter: ", "float32[5 5]"}},
	{"ReduceScatter in place", func(c *Comm) error { t := zeros[float32](5); return ReduceScatter(c, t, t, Sum) }, cohort.ErrCount, []string{"not a multiple of {n}"}},
	{"Alltoall", func(c *Comm) error { return Alltoall(c, zeros[float32](7), zeros[float32](7)) }, cohort.ErrCount, []string{"not a multiple of {n}"}},
	{"lengths of Alltoall", func(c *Comm) error { return Alltoall(c, zeros[float32](2), zeros[float32](4)) }, cohort.ErrCount, []string{"2 elements and recv 4"}},
	{"gaps", func(c *Comm) error {
		t, err := Strided(make([]float32, 20), []int{2, 3}, []int{10, 2})
		return errors.Join(err, Bcast(c, t, 0))
	}, cohort.ErrBuffer, []string{"not contiguous"}},
	{"overlap", func(c *Comm) error {
		all := make([]float64, 1000)
		a, err := Of(all[:900], 900)
		b, err2 := Of(all[100:], 900)
		return errors.Join(err, err2, Allreduce(c, a, b, Sum))
	}, cohort.ErrBuffer, []string{"overlap"}},
	{"operation", func(c *Comm) error { return Allreduce(c, zeros[float32](2), zeros[float32](2), OpOf(cohort.Band)) }, cohort.ErrOp, []string{"band"}},
	{"operation on a long tensor", func(c *Comm) error {
		return Allreduce(c, zeros[float32](2000), zeros[float32](2000), OpOf(cohort.Band))
	}, cohort.ErrOp, nil},
	{"operation on halves", func(c *Comm) error { return Allreduce(c, zeros[cohort.Float16](2), zeros[cohort.Float16](2), Op{}) }, cohort.ErrOp, nil},
}

// If all ranks make the same wrong call, blocking or not, each gets the error, and the communicator
// stays usable.
func TestSameWrongCallOnEveryRank(t *testing.T) {
	onRanks(t, []int{2, 3}, func(t *testing.T, world *cohort.Comm) error { return collectivesWrong(world) })
}

// The same, and two more tests, over the other backends; over MPI with Config.Check.
func TestWrongCallsOverProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: wrong calls are found over shm, tcp and mpi; make test-all runs it")
	}
	onProcesses(t, []int{2, 3}, "wrong", "COHORT_CHECK=1")
}

func init() {
	programs["wrong"] = func(world *cohort.Comm) error {
		return errors.Join(collectivesWrong(world), wrongOnOneRank(world, 4), wrongOnOneRank(world, 4000), mismatches(world))
	}
}

func collectivesWrong(world *cohort.Comm) error {
	c := must.Get(NewComm(world, &small))
	for _, w := range wrongs {
		var says []string
		for _, word := range w.says {
			says = append(says, strings.ReplaceAll(word, "{n}", strconv.Itoa(c.Size())))
		}
		if err := is(w.call(c), w.want, says...); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	h := must.Get(Iallreduce(c, zeros[int](2), zeros[int](3), Sum))
	must.OK(is(WaitAll(h), cohort.ErrCount, "tensor: iallreduce: "))
	return errors.Join(c.Barrier(), c.Close())
}

// If one rank's call is wrong, the others' calls, also long ones, end with an error.
func TestWrongCallOnOneRank(t *testing.T) {
	for _, n := range []int{4, 4000} {
		onRanks(t, []int{3}, func(t *testing.T, world *cohort.Comm) error { return wrongOnOneRank(world, n) })
	}
}

func wrongOnOneRank(world *cohort.Comm, n int) error {
	for i, right := range []func(c *Comm) error{
		func(c *Comm) error { return Allreduce(c, zeros[float32](n), zeros[float32](n), Sum) },
		func(c *Comm) error { return Bcast(c, zeros[float32](n), 0) },
	} {
		c, err := NewComm(world, &small)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			err = is(Allreduce(c, zeros[float32](n), zeros[float32](n+1), Sum), cohort.ErrCount)
		} else {
			err = is(right(c), cohort.ErrMismatch, "rank 1")
		}
		if err = errors.Join(err, world.Barrier(), c.Close()); err != nil {
			return fmt.Errorf("case %d: %w", i, err)
		}
	}
	return nil
}

// If the tensors of the ranks have different lengths or types, all ranks get an error, even if the
// first pieces match.
func TestMismatchedTensorsAreErrorsOnAllRanks(t *testing.T) {
	onRanks(t, []int{2, 3}, func(t *testing.T, world *cohort.Comm) error { return mismatches(world) })
}

func mismatches(world *cohort.Comm) error {
	for i, differ := range []func(c *Comm, last bool) error{
		func(c *Comm, last bool) error { return Allreduce1[float32](c, pick(last, 10, 11), Sum) },
		func(c *Comm, last bool) error { return Allreduce1[float32](c, pick(last, 1000, 2000), Sum) },
		func(c *Comm, last bool) error { return Allreduce1[float32](c, pick(last, 200, 2000), Sum) },
		func(c *Comm, last bool) error { return Bcast(c, zeros[float32](pick(last, 2000, 3000)), 0) },
		func(c *Comm, last bool) error { return Bcast(c, zeros[float32](2000), pick(last, 0, 1)) },
		func(c *Comm, last bool) error {
			if last {
				return Bcast(c, zeros[float64](2000), 0)
			}
			return Bcast(c, zeros[float32](2000), 0)
		},
		func(c *Comm, last bool) error {
			return Allreduce1[float32](c, 2000, []Op{Sum, Max}[pick(last, 0, 1)])
		},
		func(c *Comm, last bool) error {
			if last {
				return c.Barrier()
			}
			return Allreduce1[cohort.Float16](c, 2000, Sum)
		},
		func(c *Comm, last bool) error {
			k := pick(last, 500, 400)
			return Allgather(c, zeros[float64](k), zeros[float64](c.Size()*k))
		},
	} {
		c, err := NewComm(world, &small)
		if err != nil {
			return err
		}
		err = is(differ(c, c.Rank() == c.Size()-1), cohort.ErrMismatch)
		if err = errors.Join(err, world.Barrier(), c.Close()); err != nil {
			return fmt.Errorf("case %d: %w", i, err)
		}
	}
	return nil
}

// Allreduce1 is an in-place Allreduce of a new tensor.
func Allreduce1[T cohort.Number](c *Comm, n int, op Op) error {
	t := zeros[T](n)
	return Allreduce(c, t, t, op)
}

func pick(last bool, a, b int) int {
	if last {
		return b
	}
	return a
}

func TestNewCommFindsDifferentChunks(t *testing.T) {
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		_, err := NewComm(world, &Config{Chunk: 1024 << world.Rank()})
		return errors.Join(is(err, cohort.ErrMismatch, "1024", "2048"), world.Barrier())
	})
	if _, err := NewComm(nil, nil); !errors.Is(err, cohort.ErrComm) {
		t.Errorf("of nil: %v", err)
	}
	if err := Bcast(nil, zeros[int](1), 0); !errors.Is(err, cohort.ErrComm) {
		t.Errorf("Bcast on nil: %v", err)
	}
	if _, err := Ibcast(nil, zeros[int](1), 0); !errors.Is(err, cohort.ErrComm) {
		t.Errorf("Ibcast on nil: %v", err)
	}
	if err := (*Comm)(nil).Barrier(); !errors.Is(err, cohort.ErrComm) {
		t.Errorf("Barrier of nil: %v", err)
	}
}

func TestCommRefusesUseAfterClose(t *testing.T) {
	onRanks(t, []int{1}, func(t *testing.T, world *cohort.Comm) error {
		c := must.Get(NewComm(world, nil))
		h, err := Iallreduce(c, zeros[int](2), zeros[int](2), Sum)
		err = errors.Join(err, c.Close(), WaitAll(h), c.Close(), is(c.Barrier(), cohort.ErrClosed, "tensor: barrier: "))
		_, again := Iallreduce(c, zeros[int](2), zeros[int](2), Sum)
		return errors.Join(err, is(again, cohort.ErrClosed))
	})
}

// A deadline ends an operation whose partner does not take part, and one whose tensor is never ready. Later
// operations fail.
func TestDeadlineEndsCollectives(t *testing.T) {
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		for what, late := range map[string]func(l *lab, timed *Comm, d *Tensor[float64], host *Tensor[float64]) error{
			"partner": func(l *lab, timed *Comm, d, host *Tensor[float64]) error {
				return is(Bcast(timed, host, 1), cohort.ErrTimeout)
			},
			"partner of a device": func(l *lab, timed *Comm, d, host *Tensor[float64]) error {
				return is(Allreduce(timed, d, d, Sum), cohort.ErrTimeout)
			},
			"kernel": func(l *lab, timed *Comm, d, host *Tensor[float64]) error {
				end := make(chan struct{})
				s, err := l.devs[0].acc.Stream()
				if err != nil {
					return err
				}
				err = s.(*soft.Stream).Do(func(func(a accel.Address, n int) []byte) { <-end })
				d, err2 := d.On(&Stream{l.devs[0], s})
				err = errors.Join(err, err2, is(Allreduce(timed, d, d, Sum), cohort.ErrTimeout))
				close(end)
				return errors.Join(err, s.Close())
			},
		} {
			l, err := newLab(world, small, soft.Config{})
			if err != nil {
				return err
			}
			if l.rank == 0 {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				host := zeros[float64](1000)
				d, err2 := host.To(l.devs[0])
				if err = err2; err == nil {
					err = late(l, l.c.WithContext(ctx), d, host)
					err = errors.Join(err, is(l.c.Barrier(), cohort.ErrBroken), d.Close())
				}
				cancel()
			}
			if err = l.close(err); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		return nil
	})
}

// A deadline that passes before an operation's turn does not end the operations before it.
func TestDeadlineSparesEarlierCollectives(t *testing.T) {
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		c, err := NewComm(world, nil)
		if err != nil {
			return err
		}
		own := c
		if c.Rank() == 0 {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			own = c.WithContext(ctx)
		} else {
			err = world.Barrier() // rank 0 has given up the second one
		}
		x, y := zeros[float64](1000), zeros[float64](1000)
		first, err1 := Iallreduce(c, x, x, Sum)
		second, err2 := Iallreduce(own, y, y, Sum)
		if c.Rank() == 0 {
			err = errors.Join(is(WaitAll(second), cohort.ErrCanceled), world.Barrier())
		}
		err = errors.Join(err, err1, err2, WaitAll(first), is(c.Barrier(), cohort.ErrBroken))
		if c.Rank() == 1 {
			err = errors.Join(err, is(WaitAll(second), cohort.ErrBroken))
		}
		return errors.Join(err, c.Close())
	})
}

// Nil and zero values give an error or do nothing, as in the root package.
func TestNilHandlesGiveErrors(t *testing.T) {
	for _, c := range []*Comm{nil, {}} {
		if n, err := c.Size(), errors.Join(c.Close(), c.WithContext(context.Background()).Close()); n != 0 || err != nil {
			t.Errorf("a nil communicator: size %d, Close %v", n, err)
		}
		if r := c.Rank(); r != cohort.Undefined {
			t.Errorf("a nil communicator's rank is %d", r)
		}
	}
	for _, h := range []*Handle{nil, {}} {
		<-h.Done()
		st, err := h.Wait()
		tested, done, err2 := h.Test()
		if err != nil || err2 != nil || !done || st != tested || st.Source != cohort.Undefined || st.Tag != cohort.Undefined || st.Bytes() != cohort.Undefined {
			t.Errorf("a handle of no operation: Wait %v, %v, Test %v, %v, %v", st, err, tested, done, err2)
		}
	}
	x := zeros[int](1)
	for _, s := range []*Stream{nil, {}} {
		_, err := x.On(s)
		for _, err := range []error{err, s.Sync()} {
			if err = is(err, cohort.ErrBuffer, "the stream is nil"); err != nil {
				t.Error(err)
			}
		}
		if s.Handle() != 0 || s.Close() != nil {
			t.Errorf("a nil stream: handle %#x, Close %v", s.Handle(), s.Close())
		}
	}
	var r *Reducer[int]
	if err := errors.Join(is(r.Ready(0), cohort.ErrBuffer, "nil"), is(r.Wait(), cohort.ErrBuffer, "nil"), r.Close()); err != nil {
		t.Error(err)
	}
}

// WaitAny takes as many handles as one select, and refuses more.
func TestWaitAnyOfMany(t *testing.T) {
	const n = waitAnyMost
	if i, _, err := WaitAny(make([]*Handle, n+1)...); i != -1 || !errors.Is(err, cohort.ErrCount) {
		t.Errorf("of %d handles: %d, %v; want ErrCount", n+1, i, err)
	}
	for _, last := range []int{0, n - 1} {
		all := make([]*Handle, n)
		if i, _, err := WaitAny(all...); i != -1 || err != nil {
			t.Errorf("of nil handles: %d, %v", i, err)
		}
		for i := range all {
			if i != 5 {
				all[i] = newHandle()
			}
		}
		if _, done, err := all[last].Test(); done || err != nil {
			t.Errorf("an operation that is not done: %v, %v", done, err)
		}
		go all[last].finish(cohort.NewStatus(3, 4, 5), cohort.ErrTimeout)
		if i, st, err := WaitAny(all...); i != last || st != cohort.NewStatus(3, 4, 5) || err != cohort.ErrTimeout {
			t.Errorf("handle %d is done, got %d, %+v and %v", last, i, st, err)
		}
	}
}

// The zero Tensor has no shape, and is not a tensor of one element.
func TestZeroTensorIsRejected(t *testing.T) {
	alone(t, func(c *Comm) error {
		var zero Tensor[float32]
		number := zeros[float32]()
		h, err := Isend(c, number, 0, 1)
		if err != nil {
			return err
		}
		_, recv := Recv(c, &zero, 0, 1)
		_, alloc := NewReducer(c, []*Tensor[float32]{&zero}, Sum, 0)
		for i, err := range []error{recv, alloc, Send(c, &zero, 0, 1), Allreduce(c, &zero, &zero, Sum), Bcast(c, &zero, 0)} {
			if err = is(err, cohort.ErrBuffer, "the zero Tensor", "New"); err != nil {
				return fmt.Errorf("case %d: %w", i, err)
			}
		}
		_, err = Recv(c, number, 0, 1)
		return errors.Join(err, WaitAll(h))
	})
}

// A wrong setting on one rank ends NewComm on all ranks, and the world stays usable.
func TestNewCommWithWrongSettingOnOneRank(t *testing.T) {
	onRanks(t, []int{2, 3}, func(_ *testing.T, world *cohort.Comm) error {
		for _, bad := range []Config{{Chunk: -1}, {Direct: "sometimes"}} {
			var err error
			if world.Rank() == 1 {
				_, err = NewComm(world, &bad)
				err = is(err, cohort.ErrInit, "COHORT_TENSOR_")
			} else {
				_, err = NewComm(world, nil)
				err = is(err, cohort.ErrInit, "rank 1: ", "COHORT_TENSOR_")
			}
			if err = errors.Join(err, world.Barrier()); err != nil {
				return err
			}
		}
		return nil
	})
}

// The calls of the root package show the ranks what the operation is that they are part of.
func TestMismatchesNameWholeOperation(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		for _, n := range []int{20, 2000} {
			for _, call := range []func(c *Comm) error{
				func(c *Comm) error { return Allreduce1[float32](c, n, []Op{Sum, Average}[c.Rank()]) },
				func(c *Comm) error {
					if c.Rank() == 1 {
						return Allreduce1[cohort.Float16](c, n, Average)
					}
					return Allreduce1[float32](c, n, Average)
				},
			} {
				c, err := NewComm(world, &small)
				if err != nil {
					return err
				}
				err = is(call(c), cohort.ErrMismatch, fmt.Sprintf("type float32 (average), count %d, op sum", n))
				if err = errors.Join(err, world.Barrier(), c.Close()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// After Close the memory of a Reducer's buckets may be reused.
func TestReducerRefusesUseAfterClose(t *testing.T) {
	onRanks(t, []int{1}, func(_ *testing.T, world *cohort.Comm) error {
		l := must.Get(newLab(world, small, soft.Config{}))
		var tensors []*Tensor[float32]
		for range 2 {
			x := must.Get(zeros[float32](8).To(l.devs[0]))
			tensors = append(tensors, x)
		}
		r, err := NewReducer(l.c, tensors, Sum, 0)
		if err != nil {
			return err
		}
		err = errors.Join(r.Close(), r.Close(), is(r.Ready(0), cohort.ErrClosed, "Reducer"), is(r.Wait(), cohort.ErrClosed, "Reducer"))
		return l.close(errors.Join(err, tensors[0].Close(), tensors[1].Close()))
	})
}
