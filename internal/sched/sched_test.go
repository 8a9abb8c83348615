package sched_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/view"
)

var (
	int64s = &backend.Datatype{Kind: backend.Int64, Size: 8, Name: "int64", ID: uint32(backend.Int64)}
	sum    = &backend.Op{Code: backend.OpSum, Commutative: true, Type: int64s, Apply: kernel.For(backend.OpSum, backend.Int64)}
	maxOp  = &backend.Op{Code: backend.OpMax, Commutative: true, Type: int64s, Apply: kernel.For(backend.OpMax, backend.Int64)}
)

var racing bool // set by race_test.go

var sizes = []int{1, 2, 3, 4, 5, 7, 8, 13}

// nodeOf is the node of each rank; nil: all are on one. TestEverythingOnSeveralNodes sets it.
var nodeOf func(rank int) int

// placed is a communicator whose ranks are where nodeOf says.
type placed struct{ backend.Comm }

func (p placed) NodeOf(rank int) int { return nodeOf(rank) }

// ranks runs body as n ranks of a local job and returns their errors.
func ranks(t *testing.T, n int, body func(bc backend.Comm, r *sched.Runner) error) []error {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	comms := local.New(n)
	for i, bc := range comms {
		if nodeOf != nil {
			bc = placed{bc}
		}
		wg.Go(func() { errs[i] = must.Return(func(r *sched.Runner) error { return body(bc, r) })(sched.New(bc)) })
	}
	wg.Wait()
	for _, bc := range comms {
		if err := bc.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	return errs
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func allreduce(seq uint32, send, recv []int64, op *backend.Op) *backend.Call {
	return &backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: int64s, Count: len(send), Send: view.Bytes(send), Recv: view.Bytes(recv), Seq: seq}
}

func inPlace(seq uint32, buf []int64, op *backend.Op) *backend.Call {
	c := allreduce(seq, nil, buf, op)
	c.Count, c.InPlace = len(buf), true
	return c
}

func barrier(seq uint32) *backend.Call {
	return &backend.Call{Coll: backend.Barrier, Root: -1, Seq: seq}
}

func TestBlockingCollectivesGiveRightSums(t *testing.T) {
	for _, n := range sizes {
		noErrors(t, ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			for seq := range uint32(50) {
				send, recv := []int64{int64(bc.Rank()), int64(seq)}, make([]int64, 2)
				must.OK(r.Run(nil, allreduce(seq, send, recv, sum), seq%2 == 0))
				if recv[0] != int64(n*(n-1)/2) || recv[1] != int64(n)*int64(seq) {
					return fmt.Errorf("call %d: got %v", seq, recv)
				}
			}
			return r.Run(nil, barrier(50), true)
		}))
	}
}

// Several operations are under way at once, completed in another order on each
// rank.
func TestOperationsCompleteInAnyOrder(t *testing.T) {
	const many = 20
	for _, n := range sizes {
		noErrors(t, ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			ops := make([]backend.Operation, many)
			recv := make([][]int64, many)
			for i := range many {
				recv[i] = make([]int64, 300)
				send := make([]int64, 300)
				for j := range send {
					send[j] = int64(i * (j + bc.Rank()))
				}
				var err error
				if ops[i], err = r.Start(allreduce(uint32(i), send, recv[i], sum)); err != nil {
					return err
				}
			}
			for k := range many {
				i := (k*7 + bc.Rank()*3) % many
				must.OK(sched.Wait(nil, ops[i]))
				must.OK(ops[i].Err())
				for j, got := range recv[i] {
					if want := int64(i * (n*j + n*(n-1)/2)); got != want {
						return fmt.Errorf("operation %d, element %d: got %d, want %d", i, j, got, want)
					}
				}
			}
			return nil
		}))
	}
}

// prepare makes a persistent operation as its callers do.
func prepare(r *sched.Runner, call *backend.Call) (backend.Operation, error) {
	if _, err := r.Agree(nil, call); err != nil {
		return nil, err
	}
	return r.Prepare(call)
}

func TestPersistentCollectivesRestart(t *testing.T) {
	for _, n := range sizes {
		noErrors(t, ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			send, recv := make([]int64, 5), make([]int64, 5)
			other := make([]int64, 1)
			p := must.Get(prepare(r, allreduce(0, send, recv, sum)))
			q := must.Get(prepare(r, inPlace(1, other, maxOp)))
			for round := range int64(30) {
				for i := range send {
					send[i] = round + int64(i) + int64(bc.Rank())
				}
				other[0] = round * int64(bc.Rank())
				// In another order on odd ranks: what is started together was
				// matched when it was made.
				first, second := p, q
				if bc.Rank()%2 == 1 {
					first, second = q, p
				}
				first.Start()
				second.Start()
				must.OK(errors.Join(sched.Wait(nil, p), sched.Wait(nil, q), p.Err(), q.Err()))
				for i, got := range recv {
					if want := int64(n)*(round+int64(i)) + int64(n*(n-1)/2); got != want {
						return fmt.Errorf("round %d, element %d: got %d, want %d", round, i, got, want)
					}
				}
				if other[0] != round*int64(n-1) {
					return fmt.Errorf("round %d: max %d", round, other[0])
				}
			}
			return nil
		}))
	}
}

// In every pair of calls one rank makes the odd one; all get ErrMismatch that
// names the two lowest ranks whose calls differ.
func TestMismatchNamesTheTwoLowestRanks(t *testing.T) {
	buf := func(n int) []int64 { return make([]int64, n) }
	type make2 func(rank int) (usual, odd *backend.Call)
	cases := map[string]make2{
		"collective": func(int) (*backend.Call, *backend.Call) {
			return allreduce(0, buf(3), buf(3), sum), barrier(0)
		},
		"op": func(int) (*backend.Call, *backend.Call) {
			return allreduce(0, buf(3), buf(3), sum), allreduce(0, buf(3), buf(3), maxOp)
		},
		"shorter": func(int) (*backend.Call, *backend.Call) {
			return allreduce(0, buf(3000), buf(3000), sum), allreduce(0, buf(2), buf(2), sum)
		},
		"longer": func(int) (*backend.Call, *backend.Call) {
			return allreduce(0, buf(2), buf(2), sum), allreduce(0, buf(70000), buf(70000), sum)
		},
		"root": func(rank int) (*backend.Call, *backend.Call) {
			bcast := func(root int) *backend.Call {
				return &backend.Call{Coll: backend.Bcast, Root: root, Type: int64s, Count: 9, Recv: view.Bytes(buf(9))}
			}
			return bcast(0), bcast(1)
		},
		"form": func(int) (*backend.Call, *backend.Call) {
			c := barrier(0)
			c.Form = backend.Nonblocking
			return barrier(0), c
		},
	}
	for name, pair := range cases {
		for _, n := range sizes[1:] {
			for _, odd := range []int{0, n / 2, n - 1} {
				errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
					usual, other := pair(bc.Rank())
					if bc.Rank() == odd {
						usual = other
					}
					err := r.Run(nil, usual, true)
					if bc.Broken() == nil {
						return errors.New("the communicator is not broken")
					}
					return err
				})
				usual, other := pair(0)
				a, b := 0, odd
				fa, fb := usual.Fingerprint(), other.Fingerprint()
				if odd == 0 {
					b, fa, fb = 1, fb, fa
				}
				want := backend.Mismatch(a, fa, b, fb).Error()
				for rank, err := range errs {
					if !errors.Is(err, backend.ErrMismatch) || errors.Is(err, backend.ErrBroken) || err.Error() != want {
						t.Errorf("%s, %d ranks, odd one %d: rank %d got %q, want %q", name, n, odd, rank, err, want)
					}
				}
			}
		}
	}
}

// Gatherv, Scatterv and Alltoallv are called with lengths that differ between two ranks.
func TestWrongLengthsAreReportedToAllRanks(t *testing.T) {
	const n = 5
	for _, c := range []struct {
		name           string
		make           func(rank int) *backend.Call
		sender, to     int
		sent, expected int
	}{
		{"gatherv", func(rank int) *backend.Call {
			send := make([]int64, rank)
			if rank == 3 {
				send = make([]int64, 7)
			}
			call := &backend.Call{Coll: backend.Gatherv, Root: 1, Type: int64s, Send: view.Bytes(send)}
			if rank == 1 {
				call.Recv = view.Bytes(make([]int64, 10))
				call.RecvCounts, call.RecvDispls = []int{0, 1, 2, 3, 4}, []int{0, 0, 1, 3, 6}
			}
			return call
		}, 3, 1, 7, 3},
		{"scatterv", func(rank int) *backend.Call {
			recv := make([]int64, rank)
			if rank == 4 {
				recv = make([]int64, 900)
			}
			call := &backend.Call{Coll: backend.Scatterv, Root: 0, Type: int64s, Recv: view.Bytes(recv)}
			if rank == 0 {
				call.Send = view.Bytes(make([]int64, 10))
				call.SendCounts, call.SendDispls = []int{0, 1, 2, 3, 4}, []int{0, 0, 1, 3, 6}
			}
			return call
		}, 0, 4, 4, 900},
		{"alltoallv", func(rank int) *backend.Call {
			sc, rc := []int{1, 1, 1, 1, 1}, []int{1, 1, 1, 1, 1}
			d := []int{0, 2, 4, 6, 8}
			if rank == 2 {
				sc[4] = 0 // nothing where rank 4 expects one
			}
			return &backend.Call{Coll: backend.Alltoallv, Root: -1, Type: int64s,
				Send: view.Bytes(make([]int64, 10)), Recv: view.Bytes(make([]int64, 10)),
				SendCounts: sc, SendDispls: d, RecvCounts: rc, RecvDispls: d}
		}, 2, 4, 0, 1},
	} {
		for _, check := range []bool{true, false} {
			errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error { return r.Run(nil, c.make(bc.Rank()), check) })
			want := fmt.Sprintf("%v: rank %d sent %d elements, rank %d expects %d", backend.ErrMismatch, c.sender, c.sent, c.to, c.expected)
			for rank, err := range errs {
				if err == nil || err.Error() != want || !errors.Is(err, backend.ErrMismatch) {
					t.Errorf("%s, check %v: rank %d got %q, want %q", c.name, check, rank, err, want)
				}
			}
		}
	}
}

// An argument error on one rank is its own error there and a mismatch elsewhere;
// the same one on all leaves the communicator usable.
func TestArgumentErrorIsMismatchOnOtherRanks(t *testing.T) {
	bad := func() *backend.Call {
		c := allreduce(0, nil, nil, sum)
		c.Err = &backend.Fault{Sentinel: backend.ErrCount, Text: "made up"}
		return c
	}
	for _, n := range sizes {
		errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			if bc.Rank() == n/2 {
				return r.Run(nil, bad(), true)
			}
			return r.Run(nil, allreduce(0, make([]int64, 4), make([]int64, 4), sum), true)
		})
		for rank, err := range errs {
			want := backend.ErrMismatch
			if rank == n/2 {
				want = backend.ErrCount
			}
			if !errors.Is(err, want) || rank != n/2 && !strings.Contains(err.Error(), fmt.Sprintf("rank %d called", n/2)) {
				t.Errorf("%d ranks, rank %d: got %v, want %v", n, rank, err, want)
			}
		}
		noErrors(t, ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			if err := r.Run(nil, bad(), true); !errors.Is(err, backend.ErrCount) || errors.Is(err, backend.ErrMismatch) {
				return fmt.Errorf("all wrong alike: %v", err)
			}
			x := []int64{1}
			if err := r.Run(nil, inPlace(1, x, sum), true); err != nil || x[0] != int64(n) {
				return fmt.Errorf("the call after it: %v, got %d", err, x[0])
			}
			return nil
		}))
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	errs := ranks(t, 2, func(bc backend.Comm, r *sched.Runner) error {
		if bc.Rank() == 1 {
			return nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		o := must.Get(r.Start(allreduce(0, make([]int64, 100000), make([]int64, 100000), sum)))
		cancel()
		if err := sched.Wait(&backend.Bound{Ctx: ctx}, o); err != nil {
			return fmt.Errorf("still under way: %w", err)
		}
		if !o.Ready() {
			return errors.New("not complete after Wait")
		}
		return o.Err()
	})
	if !errors.Is(errs[0], backend.ErrCanceled) {
		t.Errorf("rank 0: %v", errs[0])
	}
}

// A call that is repeated does not allocate.
func TestRepeatedCallsDoNotAllocate(t *testing.T) {
	for _, n := range []int{2, 3} {
		const runs = 100
		errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			x := make([]int64, 40)
			seq := uint32(0)
			call := &backend.Call{}
			blocking := func() {
				*call = backend.Call{Coll: backend.Allreduce, InPlace: true, Root: -1, Op: sum, Type: int64s, Count: len(x), Recv: view.Bytes(x), Seq: seq}
				seq++
				if err := r.Run(nil, call, true); err != nil {
					t.Error(err)
				}
			}
			p := must.Get(prepare(r, allreduce(0, make([]int64, 40), make([]int64, 40), sum)))
			seq++
			again := func() {
				p.Start()
				if err := sched.Wait(nil, p); err != nil || p.Err() != nil {
					t.Error(err, p.Err())
				}
			}
			for range 20 { // the backend fills its pools
				blocking()
				again()
			}
			if bc.Rank() != 0 {
				for range runs + 1 { // AllocsPerRun warms up once
					blocking()
				}
				for range runs + 1 {
					again()
				}
				return nil
			}
			if a := testing.AllocsPerRun(runs, blocking); a > 0.5 && !racing {
				t.Errorf("a blocking call allocates %v times", a)
			}
			if a := testing.AllocsPerRun(runs, again); a > 0.5 && !racing {
				t.Errorf("Start and Wait allocate %v times", a)
			}
			return nil
		})
		noErrors(t, errs)
	}
}

func BenchmarkAllreduce8(b *testing.B) {
	for _, check := range []bool{true, false} {
		b.Run(fmt.Sprintf("check=%v", check), func(b *testing.B) {
			comms := local.New(2)
			b.ReportAllocs()
			var wg sync.WaitGroup
			for _, bc := range comms {
				wg.Go(func() {
					r := sched.New(bc)
					x := make([]int64, 1)
					for i := range b.N {
						call := backend.Call{Coll: backend.Allreduce, InPlace: true, Root: -1, Op: sum, Type: int64s, Count: 1, Recv: view.Bytes(x), Seq: uint32(i)}
						if err := r.Run(nil, &call, check); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			for _, bc := range comms {
				bc.Close()
			}
		})
	}
}
