package cohort

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// place is a backend with a rank and a size, which keeps the last collective call.
type place struct {
	backend.Comm
	rank, size int
	made       *backend.Call
}

func (p place) Collective(_ *backend.Bound, call *backend.Call) (backend.Plan, error) {
	*p.made = *call
	return backend.PlanDone, call.Err
}

func (place) StartCollective(*backend.Call) (backend.Operation, error)           { return nil, nil }
func (place) Exchange(_, _ *backend.Request, _, _ []byte, source, dest, tag int) {}
func (place) Flush()                                                             {}

func (p place) Rank() int          { return p.rank }
func (p place) Size() int          { return p.size }
func (place) OnWait(f, all func()) {}

func (p place) Caps() backend.Caps { return backend.Caps{Backend: "place", MaxTag: MaxTag} }

func at(rank, size int) *Comm {
	return newWorld(context.Background(), place{rank: rank, size: size, made: new(backend.Call)}, settings{})
}

// The backend receives the calls that backend.Call documents.
func TestCallsAreFilledAsDocumented(t *testing.T) {
	buf := func(n int) []int32 { return make([]int32, n) }
	all, three := buf(12), buf(3)
	counts, displs := []int{1, 2, 3, 4}, []int{0, 1, 3, 6}
	root, other := at(1, 4), at(2, 4)
	for _, x := range []struct {
		name       string
		c          *Comm
		make       func(c *Comm) error
		count      int
		send, recv int // bytes; -1: nil
		inPlace    bool
	}{
		{"Bcast", root, func(c *Comm) error { return Bcast(c, three, 1) }, 3, -1, 12, false},
		{"Reduce, root", root, func(c *Comm) error { return Reduce(c, three, buf(3), Sum, 1) }, 3, 12, 12, false},
		{"Reduce in place", root, func(c *Comm) error { return Reduce(c, three, three, Sum, 1) }, 3, -1, 12, true},
		{"Reduce, not root", other, func(c *Comm) error { return Reduce(c, three, buf(9), Sum, 1) }, 3, 12, -1, false},
		{"Reduce, same slice, not root", other, func(c *Comm) error { return Reduce(c, three, three, Sum, 1) }, 3, 12, -1, false},
		{"Allreduce", other, func(c *Comm) error { return Allreduce(c, three, buf(3), Sum) }, 3, 12, 12, false},
		{"Allreduce in place", other, func(c *Comm) error { return Allreduce(c, three, three, Sum) }, 3, -1, 12, true},
		{"Allreduce of neighbors", other, func(c *Comm) error { return Allreduce(c, all[:3], all[3:6], Sum) }, 3, 12, 12, false},
		{"ReduceScatterBlock", other, func(c *Comm) error { return ReduceScatterBlock(c, all, three, Sum) }, 3, 48, 12, false},
		{"ReduceScatterBlock in place", other, func(c *Comm) error { return ReduceScatterBlock(c, all, all, Sum) }, 3, -1, 48, true},
		{"ReduceScatter", other, func(c *Comm) error { return ReduceScatter(c, buf(10), three, counts, Sum) }, 10, 40, 12, false},
		{"ReduceScatter in place", other, func(c *Comm) error { return ReduceScatter(c, all[:10], all[:10], counts, Sum) }, 10, -1, 40, true},
		{"Gather, root", root, func(c *Comm) error { return Gather(c, three, all, 1) }, 3, 12, 48, false},
		{"Gather in place", root, func(c *Comm) error { return Gather(c, all, all, 1) }, 3, -1, 48, true},
		{"Gather, not root", other, func(c *Comm) error { return Gather(c, three, all, 1) }, 3, 12, -1, false},
		{"Gatherv, root", root, func(c *Comm) error { return Gatherv(c, buf(2), all, counts, displs, 1) }, 0, 8, 48, false},
		{"Gatherv in place", root, func(c *Comm) error { return Gatherv(c, all, all, counts, displs, 1) }, 0, -1, 48, true},
		{"Gatherv, not root", other, func(c *Comm) error { return Gatherv(c, three, nil, nil, nil, 1) }, 0, 12, -1, false},
		{"Allgather", other, func(c *Comm) error { return Allgather(c, three, all) }, 3, 12, 48, false},
		{"Allgather in place", other, func(c *Comm) error { return Allgather(c, all, all) }, 3, -1, 48, true},
		{"Allgatherv", other, func(c *Comm) error { return Allgatherv(c, three, all, counts, displs) }, 10, 12, 48, false},
		{"Allgatherv in place", other, func(c *Comm) error { return Allgatherv(c, all, all, counts, displs) }, 10, -1, 48, true},
		{"Scatter, root", root, func(c *Comm) error { return Scatter(c, all, three, 1) }, 3, 48, 12, false},
		{"Scatter in place", root, func(c *Comm) error { return Scatter(c, all, all, 1) }, 3, 48, -1, true},
		{"Scatter, not root", other, func(c *Comm) error { return Scatter(c, nil, three, 1) }, 3, -1, 12, false},
		{"Scatterv, root", root, func(c *Comm) error { return Scatterv(c, all, counts, displs, buf(2), 1) }, 0, 48, 8, false},
		{"Scatterv in place", root, func(c *Comm) error { return Scatterv(c, all, counts, displs, all, 1) }, 0, 48, -1, true},
		{"Scatterv, not root", other, func(c *Comm) error { return Scatterv(c, all, nil, nil, three, 1) }, 0, -1, 12, false},
		{"Alltoall", other, func(c *Comm) error { return Alltoall(c, all, buf(12)) }, 3, 48, 48, false},
		{"Alltoall in place", other, func(c *Comm) error { return Alltoall(c, all, all) }, 3, -1, 48, true},
		{"Alltoallv", other, func(c *Comm) error {
			return Alltoallv(c, all, counts, displs, buf(12), counts, displs)
		}, 0, 48, 48, false},
		{"Alltoallv in place", other, func(c *Comm) error { return Alltoallv(c, all, nil, nil, all, counts, displs) }, 0, -1, 48, true},
		{"Scan in place", other, func(c *Comm) error { return Scan(c, three, three, Sum) }, 3, -1, 12, true},
		{"Exscan", other, func(c *Comm) error { return Exscan(c, three, buf(3), Sum) }, 3, 12, 12, false},
		{"Exscan, rank 0 without recv", at(0, 4), func(c *Comm) error { return Exscan(c, three, nil, Sum) }, 3, 12, -1, false},
		{"nothing in place", other, func(c *Comm) error { return Allreduce(c, buf(0), buf(0), Sum) }, 0, 0, 0, false},
	} {
		if err := x.make(x.c); err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		call := x.c.base().Backend().(place).made
		length := func(b []byte) int {
			if b == nil {
				return -1
			}
			return len(b)
		}
		if call.Count != x.count || length(call.Send) != x.send || length(call.Recv) != x.recv || call.InPlace != x.inPlace {
			t.Errorf("%s: count %d, send %d bytes, recv %d bytes, in place %v; want %d, %d, %d, %v", x.name,
				call.Count, length(call.Send), length(call.Recv), call.InPlace, x.count, x.send, x.recv, x.inPlace)
		}
	}
}

func TestArgumentErrorsNameValues(t *testing.T) {
	all := make([]int32, 12)
	c := at(1, 4)
	for _, x := range []struct {
		err  error
		want error
		text string
	}{
		{Allreduce(c, all[:3], all[3:5], Sum), ErrCount, "recv has 2 elements, want 3"},
		{Allreduce(c, all[:3], nil, Sum), ErrBuffer, "recv is nil, want 3 elements"},
		{Allreduce(c, nil, all[:3], Sum), ErrBuffer, "send is nil, recv has 3 elements"},
		{Allreduce(c, all[:3], all[2:5], Sum), ErrBuffer, "overlap"},
		{Bcast(c, all, 4), ErrRoot, "root is rank 4 of 4; want 0 to 3"},
		{Scatter(c, all[:11], all[:11], 1), ErrCount, "send has 11 elements, want a multiple of 4"},
		{Scatter(c, nil, all[:2], 1), ErrBuffer, "send is nil, want 8 elements"},
		{Scatter(c, all, nil, 1), ErrBuffer, "recv is nil"},
		{Gatherv(c, all[:2], all, []int{1, 1, 1}, make([]int, 4), 1), ErrCount, "recv counts has 3 entries, want 4"},
		{Gatherv(c, all[:2], all, []int{1, 2, 1, -3}, make([]int, 4), 1), ErrCount, "recv counts[3] is -3, want 0 or more"},
		{Allgatherv(c, all[:1], make([]int32, 4), []int{1, 1, 1, 2}, []int{0, 1, 2, 3}),
			ErrBuffer, "recv has 4 elements, rank 3's block of 2 starts at 3"},
		{Allgatherv(c, all[:1], make([]int32, 9), []int{3, 1, 2, 2}, []int{5, 0, 7, 2}),
			ErrBuffer, "the blocks of rank 0 (3 at 5) and rank 2 (2 at 7) overlap"},
		{ReduceScatter(c, all, all[:1], slices.Repeat([]int{math.MaxInt/2 + 1}, 4), Sum), ErrCount, "fewer than the counts of ranks 0 to 0"},
		{Alltoallv(c, all, []int{1, 2, 1, 1}, []int{0, 1, 2, 3}, make([]int32, 9), []int{1, 1, 1, 1}, []int{0, 1, 2, 3}), ErrCount, "scounts[1] is 2 and rcounts[1] is 1"},
		{Reduce(nil, all, nil, Sum, 0), ErrComm, "nil"},
	} {
		if !errors.Is(x.err, x.want) || !strings.Contains(x.err.Error(), x.text) {
			t.Errorf("got %v, want %v with %q", x.err, x.want, x.text)
		}
	}
}

// The check of blocks, which are written or only read, is compared with a count of the blocks that
// contain each element.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte{3, 1, 2, 0, 3, 5})
	f.Add([]byte{9, 3, 5, 1, 0, 2, 7, 2, 2})
	f.Add([]byte{0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 3 || len(b) > 41 {
			return
		}
		n, size := int(b[0]%32), (len(b)-1)/2
		counts, displs := make([]int, size), make([]int, size)
		for i := range size {
			counts[i], displs[i] = int(int8(b[1+2*i])%16), int(int8(b[2+2*i])%40)
		}
		var want error
		shared := false
		in := make([]int, n)
		for i, k := range counts {
			if k < 0 {
				want = ErrCount
				break
			}
			if displs[i] < 0 || displs[i]+k > n {
				want = ErrBuffer
				continue
			}
			for j := range k {
				in[displs[i]+j]++
				shared = shared || in[displs[i]+j] > 1
			}
		}
		// Counts are checked before displacements.
		for _, k := range counts {
			if k < 0 {
				want = ErrCount
			}
		}
		for _, written := range []bool{true, false} {
			want := want
			if want == nil && written && shared {
				want = ErrBuffer
			}
			all, own := make([]int16, n), make([]int16, max(counts[0], 0))
			call := func() error { return Scatterv(at(0, size), all, counts, displs, own, 0) }
			if written {
				call = func() error { return Allgatherv(at(0, size), own, all, counts, displs) }
			}
			if err := call(); !errors.Is(err, want) {
				t.Errorf("%d elements, counts %v, displs %v, written %v: %v, want %v", n, counts, displs, written, err, want)
			}
		}
	})
}

// The state of the communicator takes precedence over wrong arguments, also in calls that the conformance suite does not
// make with them (mismatch/wrong-arguments-afterwards).
func TestBrokenCommunicatorBeatsBadArgument(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		c := must.Get(w.Dup())
		defer c.Close()
		x := make([]float64, 2)
		if err := Bcast(c, x[:1+w.Rank()], 0); !errors.Is(err, ErrMismatch) {
			return fmt.Errorf("Bcast of different lengths: %v", err)
		}
		_, _, probe := c.Iprobe(9, 0)
		_, _, alloc := RecvAppend[float64](c, nil, 9, 0)
		for what, err := range map[string]error{
			"BcastInit": second(BcastInit(c, x, 7)), "Send of a type with pointers": Send(c, []*int{nil}, 0, 0),
			"Isend": second(Isend(c, x, 9, 0)), "SendInit": second(SendInit(c, x, 9, 0)), "Iprobe": probe, "RecvAppend": alloc,
			"Sendrecv": second(Sendrecv(c, x[:1], 0, 0, x[:2], 0, 0)), "Split": second(c.Split(-5, 0)),
			"CreateGroup": second(c.CreateGroup(c.Group(), -1)),
		} {
			if !errors.Is(err, ErrBroken) {
				t.Errorf("%s with a bad argument on a broken communicator: %v, want ErrBroken", what, err)
			}
		}
		return nil
	})
}
