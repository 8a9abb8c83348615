package loggp

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// Call returns a call of float64 for each rank: with an operation that commutes, root 0, equal blocks, and
// bytes as the selection of package coll counts them, which are those of the vector, of all blocks of an
// allgather, or of one block of a gather, a scatter or an all-to-all.
func Call(c backend.Coll, n, bytes int) *backend.Call {
	call := &backend.Call{
		Coll: c, Count: bytes / 8, Type: &backend.Datatype{Size: 8}, Op: &backend.Op{Commutative: true},
	}
	if c == backend.Allgather || c == backend.ReduceScatterBlock {
		call.Count /= n
	}
	return call
}

// Colls are the collectives that differ in their algorithms and take a Call.
var Colls = []backend.Coll{
	backend.Barrier, backend.Bcast, backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.Gather,
	backend.Scatter, backend.Allgather, backend.Alltoall, backend.Scan,
}

// Predict returns the seconds that a machine takes for a call of n ranks by an algorithm, one of those that
// coll.Algorithms names. For what limit is see [NewProgram].
func Predict(m *Machine, algorithm string, call *backend.Call, n, limit int) (float64, error) {
	nodes := m.Nodes(n)
	p, err := NewProgram(n, m.Ranks, limit, func(rank int) (*coll.Schedule, error) {
		return coll.BuildAs(algorithm, call, rank, n, nodes)
	})
	if err != nil {
		return 0, err
	}
	return p.Time(m, 1)
}

// Nodes returns the nodes of n ranks of the machine.
func (m *Machine) Nodes(n int) *coll.Nodes {
	return coll.NewNodes(n, func(rank int) int { return rank / m.Ranks })
}
