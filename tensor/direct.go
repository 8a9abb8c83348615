package tensor

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Each rank decides by itself whether device memory goes directly to the library, because the
// messages between ranks do not depend on it. Collectives that become messages because of another
// rank are not in [backend.Caps].DeviceColls.

// takesDevices reports whether the library accepts device memory at all. Below thread level
// multiple, a message that waits may be received by the backend's own code, which copies with the
// processor.
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

// wholly reports whether memory passed to the root package reaches the library without being read
// by the processor. The built-in backends always read it: a program can ask for it only where the
// processor can read device memory.
func (k *core) wholly(bytes int) bool {
	return k.direct && (k.coll.Backend() != "mpi" || k.coll.Size() > 1 && bytes > backend.DeviceLeast)
}

// takesPayload reports whether a message's payload can be sent to, or received from, a rank
// directly: every piece is long enough, and the message does not go to this rank itself.
func (k *core) takesPayload(peer, size, piece int) bool {
	least := size % piece
	if least == 0 {
		least = piece
	}
	return k.wholly(least) && (k.coll.Backend() != "mpi" || peer != k.coll.Rank())
}

// direct reports whether a job's tensors go directly to the root package.
func (j *job) direct() bool {
	_, last := j.piece(j.pieces - 1)
	if j.widen || j.op.average || !j.c.wholly(j.blocks*last*j.elem) {
		return false
	}
	coll := j.coll
	switch {
	case j.pieces == 1:
	case coll == backend.ReduceScatterBlock: // its pieces have to be put together
		return false
	case coll == backend.Allgather:
		coll = backend.Allgatherv
	case coll == backend.Alltoall:
		coll = backend.Alltoallv
	}
	if j.c.coll.Backend() != "mpi" {
		return true
	}
	if j.c.ctx.Done() != nil { // a call that timed out may still be in the library
		return false
	}
	return j.c.coll.Caps().DeviceColls>>coll&1 != 0 && (!reduction(coll) || backend.DeviceOp(codes[j.op.op], j.kind))
}

// codes are the operations that libraries know.
var codes = map[cohort.Op]backend.OpCode{
	cohort.Sum: backend.OpSum, cohort.Prod: backend.OpProd, cohort.Min: backend.OpMin, cohort.Max: backend.OpMax,
}
