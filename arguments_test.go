package cohort_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/misuse"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(w *cohort.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()                      // a message that never comes is not awaited
		live := func() *cohort.Comm { // the calls break and close it
			d, err := w.Dup()
			if err != nil {
				t.Error(err)
			}
			return d
		}
		all := misuse.Package{
			Funcs: []any{
				cohort.Alltoall[int], cohort.Ialltoall[int], cohort.AlltoallInit[int], cohort.Alltoallv[int],
				cohort.Ialltoallv[int], cohort.AlltoallvInit[int], cohort.AlltoallvAppend[int], cohort.Backends,
				cohort.Bcast[int], cohort.Ibcast[int], cohort.BcastInit[int], cohort.DimsCreate, cohort.ToFloat16,
				cohort.ToBFloat16, cohort.SizeOf[int], cohort.NewStatus, cohort.Count[int], cohort.Gather[int],
				cohort.Igather[int], cohort.GatherInit[int], cohort.Allgather[int], cohort.Iallgather[int],
				cohort.AllgatherInit[int], cohort.Gatherv[int], cohort.Igatherv[int], cohort.GathervInit[int],
				cohort.GathervAppend[int], cohort.Allgatherv[int], cohort.Iallgatherv[int], cohort.AllgathervInit[int],
				cohort.AllgathervAppend[int], cohort.JoinErrors, cohort.Vector, cohort.Subarray, cohort.Indexed,
				cohort.FromMPIHandle, cohort.NeighborAllgather[int], cohort.IneighborAllgather[int],
				cohort.NeighborAllgatherInit[int], cohort.NeighborAllgatherv[int], cohort.IneighborAllgatherv[int],
				cohort.NeighborAllgathervInit[int], cohort.NeighborAlltoall[int], cohort.IneighborAlltoall[int],
				cohort.NeighborAlltoallInit[int], cohort.NeighborAlltoallv[int], cohort.IneighborAlltoallv[int],
				cohort.NeighborAlltoallvInit[int], cohort.NewOp[int], cohort.Send[int], cohort.Ssend[int],
				cohort.Isend[int], cohort.Issend[int], cohort.Recv[int], cohort.Irecv[int], cohort.Sendrecv[int],
				cohort.Isendrecv[int], cohort.RecvAppend[int], cohort.MessageRecv[int], cohort.ImessageRecv[int],
				cohort.SendInit[int], cohort.SsendInit[int], cohort.RecvInit[int], cohort.StartAll,
				cohort.WaitAllPersistent, cohort.Reduce[int], cohort.Ireduce[int], cohort.ReduceInit[int],
				cohort.Allreduce[int], cohort.Iallreduce[int], cohort.AllreduceInit[int], cohort.ReduceLocal[int],
				cohort.ReduceScatterBlock[int], cohort.IreduceScatterBlock[int], cohort.ReduceScatterBlockInit[int],
				cohort.ReduceScatter[int], cohort.IreduceScatter[int], cohort.ReduceScatterInit[int], cohort.Scan[int],
				cohort.Iscan[int], cohort.ScanInit[int], cohort.Exscan[int], cohort.Iexscan[int], cohort.ExscanInit[int],
				cohort.Rejoin, cohort.WaitAll, cohort.WaitAny, cohort.WaitSome, cohort.TestAll, cohort.TestAny,
				cohort.TestSome, cohort.Run, cohort.RunWith, cohort.BcastOne[int], cohort.ReduceOne[int],
				cohort.AllreduceOne[int], cohort.ScanOne[int], cohort.ExscanOne[int], cohort.Scatter[int],
				cohort.Iscatter[int], cohort.ScatterInit[int], cohort.Scatterv[int], cohort.Iscatterv[int],
				cohort.ScattervInit[int], cohort.Block, cohort.NewSharedRegion[int], cohort.ViewOf[int],
				cohort.SendView[int], cohort.IsendView[int], cohort.RecvView[int], cohort.IrecvView[int],
				cohort.SendrecvView[int], cohort.AlltoallView[int], cohort.NewWindow[int], cohort.AllocateShared[int],
			},
			Makes: []func() any{
				func() any { return ctx },
				func() any { return live().WithContext(ctx) },
				func() any { return live().Group() },
				func() any { return cohort.Vector(1, 1, 1) },
				func() any { return cohort.ViewOf([]int{1}, cohort.Vector(1, 1, 1)) },
				func() any { return cohort.Sum },
				func() any { return must(cohort.NewWindow[int](live(), 3)) },
				func() any { return must(must(cohort.NewWindow[int](live(), 3)).Lock(cohort.LockShared, 0)) },
				func() any { return must(must(cohort.NewWindow[int](live(), 3)).LockAll()) },
				func() any { return must(cohort.NewSharedRegion[int](live(), 3)) },
				func() any { return must(live().CartCreate([]int{1}, []bool{true}, false)) },
				func() any { return must(live().GraphCreate([]int{0}, []int{0}, false)) },
				func() any { return must(cohort.AllreduceInit(live(), []int{1}, []int{1}, cohort.Sum)) },
				func() any { return must(cohort.Isend(live(), []int{1}, 0, 0)) },
				func() any { return cohort.BFloat16(0) },
				func() any { return cohort.Float16(0) },
				func() any { return cohort.LockShared },
				func() any { return cohort.Region{} },
				func() any { return cohort.Status{} },
				func() any { return cohort.Topology{} },
			},
			Skip: map[string]string{
				"Main": "it ends the process", "Comm.Abort": "it ends the process", "RunWith": "it restarts ranks as often as it is told",
				"Init": "this process has ranks", "Register": "a backend cannot be taken back",
			},
		}
		all.Call(t)
		return nil
	})
	if !errors.Is(err, cohort.ErrRequest) { // nobody has waited for some operations
		t.Error(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
