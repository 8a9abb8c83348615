//go:build cgo && linux

package mpi

import (
	"reflect"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// The library makes a neighborhood collective only if its lengths need not be guarded, compared or bounded, and
// if its order of repeated edges is right.
func TestLibraryMakesOnlySafeCollectivesOfNeighborhoods(t *testing.T) {
	able := func() *comm { return &comm{p: &process{neighbors: true}, size: 4} }
	plain := backend.Call{Coll: backend.NeighborAlltoall, Neighbors: &backend.Neighbors{}}
	with := func(change func(call *backend.Call)) *backend.Call {
		call := plain
		change(&call)
		return &call
	}
	twice := with(func(c *backend.Call) { c.Neighbors = &backend.Neighbors{Repeated: true} })
	later := with(func(c *backend.Call) { c.Form = backend.Nonblocking })
	for _, c := range []struct {
		name   string
		change func(c *comm)
		call   *backend.Call
		want   bool
	}{
		{"blocking", func(*comm) {}, &plain, true},
		{"no counts above 2^31", func(c *comm) { c.p.neighbors = false }, &plain, false},
		{"guarded receives", func(c *comm) { c.p.guard = true }, &plain, false},
		{"agreed first", func(c *comm) { c.p.agreed = true }, &plain, false},
		{"polled", func(c *comm) { c.p.polled = true }, &plain, false},
		{"recovery", func(c *comm) { c.p.recovers = true }, &plain, false},
		{"one rank", func(c *comm) { c.size = 1 }, &plain, false},
		{"wrong arguments", func(*comm) {}, &backend.Call{Coll: backend.NeighborAlltoall, Err: backend.ErrCount}, false},
		{"persistent", func(c *comm) { c.near.graph = 1 }, with(func(c *backend.Call) { c.Form = backend.Persistent }), false},
		{"nonblocking, before the graph is made", func(*comm) {}, later, false},
		{"nonblocking", func(c *comm) { c.near.graph = 1 }, later, true},
		{"repeated edges, in a right order", func(*comm) {}, twice, true},
		{"repeated edges, in a wrong order", func(c *comm) { c.p.quirks = quirksOf("mpich", "MPICH", "4.0.2") }, twice, false},
	} {
		on := able()
		c.change(on)
		if got := on.ownNeighbors(c.call); got != c.want {
			t.Errorf("%s: the library makes it is %v, want %v", c.name, got, c.want)
		}
	}
}

// The library's call has the blocks of ranks only, in the order of its edges.
func TestNeighborhoodHasNoBlocksOfProcNull(t *testing.T) {
	const none = backend.ProcNull
	// In the first dimension nothing is below, in the second rank 2 is on both sides.
	grid := &backend.Neighbors{Sources: []int{none, 5, 2, 2}, Destinations: []int{none, 5, 2, 2}, Cart: true, Repeated: true}
	graph := &backend.Neighbors{Sources: []int{3, 1, 3}, Destinations: []int{4}}
	typ := &backend.Datatype{Size: 8}
	room := func(n int) []byte { return make([]byte, 8*n) }
	for _, c := range []struct {
		call                           backend.Call
		sends, recvs                   []int
		coll                           backend.Coll
		count                          int
		scounts, sdispls, rcounts, rds []int
	}{
		{backend.Call{Coll: backend.NeighborAlltoall, Neighbors: grid, Send: room(20), Recv: room(20)},
			[]int{1, 2, 3}, []int{1, 3, 2}, backend.NeighborAlltoallv, 0, []int{5, 5, 5}, []int{5, 10, 15}, []int{5, 5, 5}, []int{5, 15, 10}},
		{backend.Call{Coll: backend.NeighborAllgather, Neighbors: graph, Send: room(2), Recv: room(6)},
			[]int{0}, []int{0, 1, 2}, backend.NeighborAllgatherv, 2, nil, nil, []int{2, 2, 2}, []int{0, 2, 4}},
		{backend.Call{Coll: backend.NeighborAllgatherv, Neighbors: grid, Send: room(1), Recv: room(9), RecvCounts: []int{7, 1, 2, 3}, RecvDispls: []int{0, 8, 3, 5}},
			[]int{1, 2, 3}, []int{1, 3, 2}, backend.NeighborAllgatherv, 1, nil, nil, []int{1, 3, 2}, []int{8, 5, 3}},
		{backend.Call{Coll: backend.NeighborAlltoallv, Neighbors: graph, Send: room(9), Recv: room(9), SendCounts: []int{4}, SendDispls: []int{5},
			RecvCounts: []int{1, 2, 0}, RecvDispls: []int{6, 1, 0}},
			[]int{0}, []int{0, 1, 2}, backend.NeighborAlltoallv, 0, []int{4, 0, 0}, []int{5, 0, 0}, []int{1, 2, 0}, []int{6, 1, 0}},
	} {
		n := newNeighborhood(c.call.Neighbors)
		if !reflect.DeepEqual(n.sends, c.sends) || !reflect.DeepEqual(n.recvs, c.recvs) {
			t.Errorf("%v: edges %v and %v, want %v and %v", c.call.Coll, n.sends, n.recvs, c.sends, c.recvs)
		}
		c.call.Type = typ
		var a libmpi.Coll
		n.translate(&c.call, &a)
		want := libmpi.Coll{Coll: int(c.coll), Count: c.count, Size: 3, SendCounts: c.scounts, SendDispls: c.sdispls, RecvCounts: c.rcounts, RecvDispls: c.rds}
		if !reflect.DeepEqual(a, want) {
			t.Errorf("%v: %+v, want %+v", c.call.Coll, a, want)
		}
	}
}
