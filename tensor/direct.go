package tensor

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Whether a device's memory is given to the library beneath is a matter of one rank's: what the ranks say
// to each other is the same, and a call that may be messages because of another rank is not among
// [backend.Caps].DeviceColls.

// takesDevices reports whether the library takes device memory at all. Where its calls come from one thread
// at a time, what waits meanwhile may be received elsewhere, and copied by the processor.
func (k *core) takesDevices() bool {
	caps := k.coll.Caps()
	switch k.cfg.Direct {
	case "on":
		return caps.Backend != "mpi" || caps.ThreadLevel == "multiple"
	case "off":
		return false
	}
	return caps.DeviceMemory == "yes"
}

// wholly reports whether what is given to the root package reaches the library without being looked at.
// Built-in backends always look: for them a program can ask for it only where the host can read the
// device's memory.
func (k *core) wholly(bytes int) bool {
	return k.direct && (k.coll.Backend() != "mpi" || k.coll.Size() > 1 && bytes > backend.DeviceLeast)
}

// takesPayload reports whether a message's payload can be sent to, or received from, a rank as it is:
// every piece is long, and the library does not keep it for this rank itself.
func (k *core) takesPayload(peer, size, piece int) bool {
	least := size % piece
	if least == 0 {
		least = piece
	}
	return k.wholly(least) && (k.coll.Backend() != "mpi" || peer != k.coll.Rank())
}

// direct reports whether a job's tensors go to the root package as they are.
func (j *job) direct() bool {
	_, last := j.piece(j.pieces - 1)
	if j.widen || j.op.average || !j.c.wholly(j.blocks*last*j.elem) {
		return false
	}
	coll := j.coll
	switch {
	case j.pieces == 1:
	case coll == backend.ReduceScatterBlock: // whose pieces have to be put together
		return false
	case coll == backend.Allgather:
		coll = backend.Allgatherv
	case coll == backend.Alltoall:
		coll = backend.Alltoallv
	}
	if j.c.coll.Backend() != "mpi" {
		return true
	}
	if j.c.ctx.Done() != nil { // what has ended early may still be in the library
		return false
	}
	return j.c.coll.Caps().DeviceColls>>coll&1 != 0 && (!reduction(coll) || backend.DeviceOp(codes[j.op.op], j.kind))
}

// codes has the operations that libraries know.
var codes = map[cohort.Op]backend.OpCode{
	cohort.Sum: backend.OpSum, cohort.Prod: backend.OpProd, cohort.Min: backend.OpMin, cohort.Max: backend.OpMax,
}
