package flight

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
)

// Kind is the kind of an operation: a backend.Coll, or one of those below.
type Kind uint8

// The operations that are not collectives.
const (
	Send Kind = 64 + iota
	Ssend
	Recv
	Sendrecv
	RecvAppend
	Probe
	Mprobe
	MessageRecv
	WaitAny
	CreateGroup
	Lock
	LockAll
	Agree
	Shrink
	Region // a part of the program, not an operation
	Put
	Get
	Accumulate
	GetAccumulate
	FetchAndOp
	CompareAndSwap
	Flush
	numKinds
)

var kindNames = [...]string{
	"Send", "Ssend", "Recv", "Sendrecv", "RecvAppend", "Probe", "Mprobe", "MessageRecv", "WaitAny", "CreateGroup", "Lock", "LockAll",
	"Agree", "Shrink", "Region", "Put", "Get", "Accumulate", "GetAccumulate", "FetchAndOp", "CompareAndSwap", "Flush",
}

// Collective reports whether k is a collective.
func (k Kind) Collective() bool { return k < Send }

// Agreement reports whether k is one of those that survivors make together. They are numbered like
// collectives, apart from these: a communicator has agreements after its collectives have ended.
func (k Kind) Agreement() bool { return k == Agree || k == Shrink }

// gathers reports whether all ranks of a communicator, or all survivors, must take part.
func (k Kind) gathers() bool { return k.Collective() || k.Agreement() }

// known reports whether there is such an operation.
func (k Kind) known() bool {
	return k >= Send && k < numKinds || k > 0 && k <= Kind(backend.NeighborAlltoallv)
}

// String returns the operation's name in Go's spelling.
func (k Kind) String() string {
	switch {
	case !k.known():
		return fmt.Sprintf("operation %d", uint8(k))
	case k.Collective():
		return backend.Coll(k).String()
	}
	return kindNames[k-Send]
}
