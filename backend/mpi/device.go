//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// deviceMemory returns whether the library takes a GPU's memory, of which it says 1 for yes, 0 for no, and
// -1 for nothing. What it was told counts more: Open MPI 4 says how it was built.
func (p *process) deviceMemory(asked string, says int) string {
	switch {
	case asked == "off" || says == 0:
		return "no"
	case p.polled || p.level < libmpi.Serialized: // receives are guarded, and collectives made, by other means
		return "no"
	case says == 1:
		return "yes"
	}
	return "unknown"
}

// deviceColls returns the collectives whose buffers the library gets as they are; the same on all ranks.
// Schedules copy and reduce, as do the calls that are never made in place.
func (p *process) deviceColls() (colls uint32) {
	if p.polled {
		return 0
	}
	for coll := backend.Bcast; coll <= backend.Exscan; coll++ {
		if !p.sound[coll].native || !p.sound[coll].inPlace {
			continue
		}
		switch coll {
		case backend.Gatherv, backend.Scatterv, backend.Alltoallv: // see scheduled
			if p.guard || !p.large || p.agreed {
				continue
			}
		case backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.ReduceScatter, backend.Scan, backend.Exscan:
			if p.deterministic || !p.deviceOps() {
				continue
			}
		}
		colls |= 1 << coll
	}
	return colls
}

// deviceOps reports whether all reductions that are to be the library's own are.
func (p *process) deviceOps() bool {
	for kind := backend.Int8; kind < backend.Loc; kind++ {
		for op := backend.OpSum; op <= backend.OpMaxLoc; op++ {
			if backend.DeviceOp(op, kind) && p.ops.needsCallback(&backend.Op{Code: op, Type: &backend.Datatype{Kind: kind}}) {
				return false
			}
		}
	}
	return true
}
