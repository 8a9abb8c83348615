package tensor

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Barrier returns when every rank has called it, and the collectives before it are done on this one.
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Errors: [cohort.ErrMismatch] on every rank if another rank calls another collective.
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func (c *Comm) Barrier() error { return blocking(c, call[uint8]{coll: backend.Barrier}) }

// Ibarrier starts a [Comm.Barrier].
//
// Collective: all ranks of c call it, in the same order as its other collectives.
func (c *Comm) Ibarrier() (*Handle, error) { return start(c, call[uint8]{coll: backend.Barrier}) }

// Bcast copies root's tensor to those of all ranks.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same type,
// number of elements, and root.
//
// Tensors: contiguous, on any device.
//
// Errors: [cohort.ErrRoot], [cohort.ErrBuffer] for bad arguments; [cohort.ErrMismatch] on every rank if the
// ranks' calls differ; what a device's driver says, and [cohort.ErrBroken] on the other ranks then.
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func Bcast[T cohort.Number](c *Comm, t *Tensor[T], root int) error {
	return blocking(c, call[T]{coll: backend.Bcast, send: t, recv: t, root: root})
}

// Ibcast starts a [Bcast].
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Tensors: as for [Bcast]; they belong to the operation until it is done.
func Ibcast[T cohort.Number](c *Comm, t *Tensor[T], root int) (*Handle, error) {
	return start(c, call[T]{coll: backend.Bcast, send: t, recv: t, root: root})
}
