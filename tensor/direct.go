package tensor

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// Each rank decides by itself whether device memory goes directly to the library, because the
// messages between ranks do not depend on it. [backend.Devices] is false for collectives that become
// messages because of another rank.

// takesDevices reports whether the library accepts device memory at all. Below thread level
// multiple, a message that waits may be received by the backend's own code, which copies with the
// processor.
func (k *core) takesDevices() bool {
	caps := k.coll.Caps()
	switch k.cfg.Direct {
	case "on":
		return k.coll.Devices() == nil || caps.ThreadLevel == "multiple"
	case "off":
		return false
	}
	return caps.DeviceMemory == "yes"
}

// passes reports whether memory passed to the root package reaches the library without being read by
// the processor. Backends without a library always read it: a program can ask for it only where the
// processor can read device memory.
func (k *core) passes(coll backend.Coll, op backend.OpCode, kind backend.Kind, bytes int) bool {
	d := k.coll.Devices()
	return k.direct && (d == nil || d.Direct(coll, op, kind, bytes))
}

// takesPayload reports whether a message's payload can be sent to, or received from, a rank
// directly: every piece is long enough, and the message does not go to this rank itself.
func (k *core) takesPayload(peer, size, piece int) bool {
	least := size % piece
	if least == 0 {
		least = piece
	}
	return k.passes(0, 0, 0, least) && (k.coll.Devices() == nil || peer != k.coll.Rank())
}

// view returns device memory for the library, which will end in a thread that can use the device.
func (k *core) view(d *Device, at accel.Address, bytes int) []byte {
	k.viewed.Do(func() {
		if lib := k.coll.Devices(); lib != nil {
			lib.End(d.acc.Run)
		}
	})
	return d.acc.View(at, bytes)
}

// direct reports whether a collective's tensors go directly to the root package.
func (co *collective) direct() bool {
	if !co.c.direct || co.widen || co.op.average {
		return false
	}
	coll := co.coll
	switch {
	case co.same && coll != backend.Reduce && coll != backend.Allreduce && co.c.coll.Devices() != nil: // see backend.Devices
		return false
	case co.pieces == 1:
	case coll == backend.ReduceScatterBlock: // its pieces have to be put together
		return false
	case coll == backend.Allgather:
		coll = backend.Allgatherv
	case coll == backend.Alltoall:
		coll = backend.Alltoallv
	}
	if co.c.coll.Devices() != nil && co.c.ctx.Done() != nil { // a call that timed out may still be in the library
		return false
	}
	_, last := co.piece(co.pieces - 1)
	return co.c.passes(coll, codes[co.op.op], co.kind, co.blocks*last*co.elem)
}

// codes are the operations that libraries know.
var codes = map[cohort.Op]backend.OpCode{
	cohort.Sum: backend.OpSum, cohort.Prod: backend.OpProd, cohort.Min: backend.OpMin, cohort.Max: backend.OpMax,
}
