package comm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/view"
)

// RankError is the error of one rank on all ranks.
type RankError struct {
	Rank  int
	Other bool  // it is another rank's
	Err   error // on that rank its error; on the others one with its sentinel and text
}

// Error returns the rank and its error.
func (e *RankError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns what the error wraps.
func (e *RankError) Unwrap() error { return e.Err }

// Follows says whether the rank fails because of another one. The launcher reports that one.
func (e *RankError) Follows() bool { return e.Other }

// joinMost is the length of an error that ranks exchange, in bytes.
const joinMost = 4096

var joinCall = callType("JoinErrors")

// Join returns nil on every rank if err is nil on all ranks. Otherwise it returns the RankError of the lowest
// rank that has an error, joined with the calling rank's own.
func (c *Comm) Join(err error) error {
	err = backend.Harmless(err)
	one, failed := c.joinAlone(joinCall, err)
	switch {
	case failed != nil:
		return errors.Join(err, c.failed("joinerrors", failed))
	case one == nil:
		return nil
	case one.Other && err != nil:
		return errors.Join(one, err)
	}
	return one
}

// joinAlone is join for a caller that has not taken the communicator.
func (c *Comm) joinAlone(typ *backend.Datatype, err error) (*RankError, error) {
	if err := c.take(); err != nil {
		return nil, err
	}
	defer c.core.life.leave()
	return c.withDeadline().join(typ, err)
}

// join returns the error of the lowest rank that has one, on all ranks, or nil if no rank has one. The type names
// the call.
func (c *Comm) join(typ *backend.Datatype, err error) (*RankError, error) {
	k := c.core
	lowest := []int64{int64(k.size)}
	if err != nil {
		lowest[0] = int64(k.rank)
	}
	k.call = backend.Call{
		Coll: backend.Allreduce, InPlace: true, Root: -1, Op: datatype.Op(backend.OpMin, datatype.Number(backend.Int64)), Type: typ, Count: 1, Recv: view.Bytes(lowest),
	}
	if failed := k.do(c.bound); failed != nil || lowest[0] == int64(k.size) {
		return nil, failed
	}
	one := &RankError{Rank: int(lowest[0]), Other: int(lowest[0]) != k.rank, Err: err}
	b := make([]byte, joinMost) // the length, and the error
	if !one.Other {
		binary.LittleEndian.PutUint16(b, uint16(copy(b[2:], backend.EncodeError(err, joinMost-2))))
	}
	k.call = backend.Call{Coll: backend.Bcast, Root: one.Rank, Type: typ, Count: len(b) / typ.Size, Recv: b}
	failed := k.do(c.bound)
	if failed == nil { // the rank that failed may leave next, and the root of a Bcast does not wait
		k.call = backend.Call{Coll: backend.Barrier, Root: -1}
		failed = k.do(c.bound)
	}
	if one.Other {
		one.Err = backend.DecodeError(b[2:][:min(binary.LittleEndian.Uint16(b), joinMost-2)])
	}
	return one, failed
}
