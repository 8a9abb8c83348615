package tensor_test

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/misuse"
	"github.com/cohort-hpc/cohort/tensor"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(w *cohort.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a message that never comes is not awaited
		live := func() *tensor.Comm {
			c, err := tensor.NewComm(w, nil)
			if err != nil {
				t.Error(err)
			}
			return c.WithContext(ctx)
		}
		vector := func() *tensor.Tensor[float64] {
			v, err := tensor.New[float64](2)
			if err != nil {
				t.Error(err)
			}
			return v
		}
		all := misuse.Package{
			Funcs: []any{
				tensor.Bcast[float64], tensor.Ibcast[float64], tensor.Allgather[float64], tensor.Iallgather[float64],
				tensor.Alltoall[float64], tensor.Ialltoall[float64], tensor.Reduce[float64], tensor.Ireduce[float64],
				tensor.Allreduce[float64], tensor.Iallreduce[float64], tensor.ReduceScatter[float64],
				tensor.IreduceScatter[float64], tensor.NewComm, tensor.Copy[float64], tensor.NewOn[float64],
				tensor.At[float64], tensor.CUDACount, tensor.CUDA, tensor.LocalDevice, tensor.WaitAll, tensor.WaitAny,
				tensor.OpOf, tensor.Send[float64], tensor.Isend[float64], tensor.Recv[float64], tensor.Irecv[float64],
				tensor.RecvAppend[float64], tensor.Sendrecv[float64], tensor.MessageRecv[float64],
				tensor.NewReducer[float64], tensor.AllreduceAll[float64], tensor.New[float64], tensor.Of[float64],
				tensor.Strided[float64],
			},
			Makes: []func() any{
				func() any { return ctx },
				func() any { return w.WithContext(ctx) },
				func() any { return live() },
				func() any { return vector() },
				func() any { return tensor.CPU },
				func() any { return tensor.Sum },
				func() any { return &tensor.Handle{} },
				func() any { return &tensor.Reducer[float64]{} },
				func() any { return &tensor.Stream{} },
			},
		}
		all.Call(t)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
