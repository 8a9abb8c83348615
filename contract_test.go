package cohort_test

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The forms that programs outside the repository are written against. A change
// that breaks one of them does not compile here.

type (
	f64  = float64
	comm = *cohort.Comm
	req  = *cohort.Request
	per  = *cohort.Persistent
	stat = cohort.Status
	op   = cohort.Op
	near = cohort.Neighborhood
)

// number makes sure that a generic program can hand its own Number type on.
func number[T cohort.Number](c comm, send, recv []T, o op) []error {
	_, err1 := cohort.Iallreduce(c, send, recv, o)
	_, err2 := cohort.AllreduceInit(c, send, recv, o)
	return []error{err1, err2, cohort.Allreduce(c, send, recv, o)}
}

var (
	_ func(context.Context, *cohort.Config) (comm, error)        = cohort.Init
	_ func(context.Context, int, func(*cohort.Comm) error) error = cohort.Run
	_ func(comm, []int32, []int32, op) []error                   = number[int32]
	_ func(bool, func([]f64, []f64)) op                          = cohort.NewOp[f64]
	_                                                            = []error{cohort.ErrBuffer, cohort.ErrCount, cohort.ErrType, cohort.ErrTag, cohort.ErrRank, cohort.ErrRoot, cohort.ErrOp,
		cohort.ErrTruncate, cohort.ErrComm, cohort.ErrClosed, cohort.ErrBusy, cohort.ErrRequest, cohort.ErrWin, cohort.ErrAlloc,
		cohort.ErrInit, cohort.ErrNotSupported, cohort.ErrTimeout, cohort.ErrCanceled, cohort.ErrPeerLost, cohort.ErrMismatch,
		cohort.ErrBroken, cohort.ErrInternal}
	_ = []op{cohort.Sum, cohort.Prod, cohort.Min, cohort.Max, cohort.Land, cohort.Lor, cohort.Lxor, cohort.Band, cohort.Bor,
		cohort.Bxor, cohort.MinLoc, cohort.MaxLoc}
	_       = []int{cohort.AnySource, cohort.AnyTag, cohort.ProcNull, cohort.Undefined}
	_       = cohort.Loc[f64]{Val: 1, Idx: int64(2)}
	_       = cohort.Status{Source: 1, Tag: 2}
	_ error = &cohort.OpError{Op: "", Comm: "", Rank: 0, Peer: 0, Tag: 0, Err: nil}
	_ error = &cohort.MPIError{Class: 0, Code: 0, Text: ""}
	_       = cohort.Config{Backend: "", Deterministic: false, Check: false}

	// Point to point.
	_ func(comm, []f64, int, int) error                          = cohort.Send[f64]
	_ func(comm, []f64, int, int) error                          = cohort.Ssend[f64]
	_ func(comm, []f64, int, int) (req, error)                   = cohort.Isend[f64]
	_ func(comm, []f64, int, int) (req, error)                   = cohort.Issend[f64]
	_ func(comm, []f64, int, int) (stat, error)                  = cohort.Recv[f64]
	_ func(comm, []f64, int, int) (req, error)                   = cohort.Irecv[f64]
	_ func(comm, []f64, int, int, []f64, int, int) (stat, error) = cohort.Sendrecv[f64]
	_ func(comm, []f64, int, int) (per, error)                   = cohort.SendInit[f64]
	_ func(comm, []f64, int, int) (per, error)                   = cohort.RecvInit[f64]
	_ func(comm, []f64, int, int) ([]f64, stat, error)           = cohort.RecvAppend[f64]
	_ func(*cohort.Message, []f64) (stat, error)                 = cohort.MessageRecv[f64]
	_ func(stat) int                                             = cohort.Count[f64]
	_ func(stat) int                                             = stat.Bytes
	_ func(comm, int, int) (stat, error)                         = comm.Probe
	_ func(comm, int, int) (stat, bool, error)                   = comm.Iprobe
	_ func(comm, int, int) (*cohort.Message, stat, error)        = comm.Mprobe
	_ func(comm, int, int) (*cohort.Message, stat, bool, error)  = comm.Improbe

	// Collectives, blocking.
	_ func(comm) error                                           = comm.Barrier
	_ func(comm, []f64, int) error                               = cohort.Bcast[f64]
	_ func(comm, []f64, []f64, op, int) error                    = cohort.Reduce[f64]
	_ func(comm, []f64, []f64, op) error                         = cohort.Allreduce[f64]
	_ func(comm, []f64, []f64, op) error                         = cohort.ReduceScatterBlock[f64]
	_ func(comm, []f64, []f64, []int, op) error                  = cohort.ReduceScatter[f64]
	_ func(comm, []f64, []f64, int) error                        = cohort.Gather[f64]
	_ func(comm, []f64, []f64, []int, []int, int) error          = cohort.Gatherv[f64]
	_ func(comm, []f64, []f64) error                             = cohort.Allgather[f64]
	_ func(comm, []f64, []f64, []int, []int) error               = cohort.Allgatherv[f64]
	_ func(comm, []f64, []f64, int) error                        = cohort.Scatter[f64]
	_ func(comm, []f64, []int, []int, []f64, int) error          = cohort.Scatterv[f64]
	_ func(comm, []f64, []f64) error                             = cohort.Alltoall[f64]
	_ func(comm, []f64, []int, []int, []f64, []int, []int) error = cohort.Alltoallv[f64]
	_ func(comm, []f64, []f64, op) error                         = cohort.Scan[f64]
	_ func(comm, []f64, []f64, op) error                         = cohort.Exscan[f64]
	_ func(comm, []f64, []f64, int) ([]f64, []int, error)        = cohort.GathervAppend[f64]
	_ func(comm, []f64, []f64) ([]f64, []int, error)             = cohort.AllgathervAppend[f64]
	_ func(comm, []f64, []f64, []int) ([]f64, []int, error)      = cohort.AlltoallvAppend[f64]
	_ func(comm, f64, op) (f64, error)                           = cohort.AllreduceOne[f64]
	_ func(comm, f64, op, int) (f64, error)                      = cohort.ReduceOne[f64]
	_ func(comm, f64, op) (f64, error)                           = cohort.ScanOne[f64]
	_ func(comm, f64, op) (f64, error)                           = cohort.ExscanOne[f64]
	_ func(comm, f64, int) (f64, error)                          = cohort.BcastOne[f64]

	// Nonblocking.
	_ func(comm) (req, error)                                           = comm.Ibarrier
	_ func(comm, []f64, int) (req, error)                               = cohort.Ibcast[f64]
	_ func(comm, []f64, []f64, op, int) (req, error)                    = cohort.Ireduce[f64]
	_ func(comm, []f64, []f64, op) (req, error)                         = cohort.Iallreduce[f64]
	_ func(comm, []f64, []f64, op) (req, error)                         = cohort.IreduceScatterBlock[f64]
	_ func(comm, []f64, []f64, []int, op) (req, error)                  = cohort.IreduceScatter[f64]
	_ func(comm, []f64, []f64, int) (req, error)                        = cohort.Igather[f64]
	_ func(comm, []f64, []f64, []int, []int, int) (req, error)          = cohort.Igatherv[f64]
	_ func(comm, []f64, []f64) (req, error)                             = cohort.Iallgather[f64]
	_ func(comm, []f64, []f64, []int, []int) (req, error)               = cohort.Iallgatherv[f64]
	_ func(comm, []f64, []f64, int) (req, error)                        = cohort.Iscatter[f64]
	_ func(comm, []f64, []int, []int, []f64, int) (req, error)          = cohort.Iscatterv[f64]
	_ func(comm, []f64, []f64) (req, error)                             = cohort.Ialltoall[f64]
	_ func(comm, []f64, []int, []int, []f64, []int, []int) (req, error) = cohort.Ialltoallv[f64]
	_ func(comm, []f64, []f64, op) (req, error)                         = cohort.Iscan[f64]
	_ func(comm, []f64, []f64, op) (req, error)                         = cohort.Iexscan[f64]

	// Persistent.
	_ func(comm) (per, error)                                           = comm.BarrierInit
	_ func(comm, []f64, int) (per, error)                               = cohort.BcastInit[f64]
	_ func(comm, []f64, []f64, op, int) (per, error)                    = cohort.ReduceInit[f64]
	_ func(comm, []f64, []f64, op) (per, error)                         = cohort.AllreduceInit[f64]
	_ func(comm, []f64, []f64, op) (per, error)                         = cohort.ReduceScatterBlockInit[f64]
	_ func(comm, []f64, []f64, []int, op) (per, error)                  = cohort.ReduceScatterInit[f64]
	_ func(comm, []f64, []f64, int) (per, error)                        = cohort.GatherInit[f64]
	_ func(comm, []f64, []f64, []int, []int, int) (per, error)          = cohort.GathervInit[f64]
	_ func(comm, []f64, []f64) (per, error)                             = cohort.AllgatherInit[f64]
	_ func(comm, []f64, []f64, []int, []int) (per, error)               = cohort.AllgathervInit[f64]
	_ func(comm, []f64, []f64, int) (per, error)                        = cohort.ScatterInit[f64]
	_ func(comm, []f64, []int, []int, []f64, int) (per, error)          = cohort.ScattervInit[f64]
	_ func(comm, []f64, []f64) (per, error)                             = cohort.AlltoallInit[f64]
	_ func(comm, []f64, []int, []int, []f64, []int, []int) (per, error) = cohort.AlltoallvInit[f64]
	_ func(comm, []f64, []f64, op) (per, error)                         = cohort.ScanInit[f64]
	_ func(comm, []f64, []f64, op) (per, error)                         = cohort.ExscanInit[f64]

	// Neighborhoods.
	_                                                                   = []near{(*cohort.Cart)(nil), (*cohort.Graph)(nil)}
	_ func(*cohort.Cart, []bool) (*cohort.Cart, error)                  = (*cohort.Cart).Sub
	_ func(comm, []int, []int, bool) (*cohort.Graph, error)             = comm.GraphCreate
	_ func(near, []f64, []f64) error                                    = cohort.NeighborAllgather[f64]
	_ func(near, []f64, []f64, []int, []int) error                      = cohort.NeighborAllgatherv[f64]
	_ func(near, []f64, []f64) error                                    = cohort.NeighborAlltoall[f64]
	_ func(near, []f64, []int, []int, []f64, []int, []int) error        = cohort.NeighborAlltoallv[f64]
	_ func(near, []f64, []f64) (req, error)                             = cohort.IneighborAllgather[f64]
	_ func(near, []f64, []f64, []int, []int) (req, error)               = cohort.IneighborAllgatherv[f64]
	_ func(near, []f64, []f64) (req, error)                             = cohort.IneighborAlltoall[f64]
	_ func(near, []f64, []int, []int, []f64, []int, []int) (req, error) = cohort.IneighborAlltoallv[f64]
	_ func(near, []f64, []f64) (per, error)                             = cohort.NeighborAllgatherInit[f64]
	_ func(near, []f64, []f64, []int, []int) (per, error)               = cohort.NeighborAllgathervInit[f64]
	_ func(near, []f64, []f64) (per, error)                             = cohort.NeighborAlltoallInit[f64]
	_ func(near, []f64, []int, []int, []f64, []int, []int) (per, error) = cohort.NeighborAlltoallvInit[f64]

	// Requests.
	_ func(req) (stat, error)               = req.Wait
	_ func(req) (stat, bool, error)         = req.Test
	_ func(...req) error                    = cohort.WaitAll
	_ func(...req) (int, stat, error)       = cohort.WaitAny
	_ func(...req) ([]int, error)           = cohort.WaitSome
	_ func(...req) (bool, error)            = cohort.TestAll
	_ func(...req) (int, stat, bool, error) = cohort.TestAny
	_ func(...req) ([]int, error)           = cohort.TestSome
	_ func(per) error                       = per.Start
	_ func(per) (stat, error)               = per.Wait
	_ func(per) (stat, bool, error)         = per.Test
	_ func(per) error                       = per.Close
	_ func(...per) error                    = cohort.StartAll
	_ func(...per) error                    = cohort.WaitAllPersistent

	// Communicators.
	_ func(comm) int                     = comm.Rank
	_ func(comm) int                     = comm.Size
	_ func(comm) string                  = comm.Name
	_ func(comm) string                  = comm.Backend
	_ func(comm) (comm, error)           = comm.Dup
	_ func(comm, int, int) (comm, error) = comm.Split
	_ func(comm) (comm, error)           = comm.SplitShared
	_ func(comm, context.Context) comm   = comm.WithContext
	_ func(comm) error                   = comm.Close
)

// Names whose exact form is the library's own to choose.
func TestContract(t *testing.T) {
	err := cohort.Run(t.Context(), 2, func(c *cohort.Comm) error {
		g, err := c.CreateGroup(c.Group(), 3)
		if err != nil {
			return err
		}
		cart, err := c.CartCreate([]int{2}, []bool{true}, false)
		if err != nil {
			return err
		}
		_, _ = c.Caps(), c.Topology()
		if g.Size() != 2 || cart.Size() != 2 {
			t.Errorf("group of %d, grid of %d, want 2", g.Size(), cart.Size())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
