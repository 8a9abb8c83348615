//go:build cgo && linux

package mpi

import (
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// types holds the library's types of elements: its own for numbers, and blocks of bytes for the
// rest.
type types struct {
	kinds [backend.Loc + 1]libmpi.Type // 0: the library has none
	mu    sync.RWMutex
	sizes map[int]libmpi.Type
}

func (t *types) init() {
	for k := backend.Opaque; k <= backend.Loc; k++ {
		t.kinds[k] = libmpi.TypeOf(int(k))
	}
	t.sizes = map[int]libmpi.Type{1: t.kinds[backend.Opaque]}
}

// number returns the library's own type of elements, 0 if it has none.
func (t *types) number(d *backend.Datatype) libmpi.Type {
	if d.Kind == backend.Opaque {
		return 0
	}
	return t.kinds[d.Kind]
}

// of returns the type to move elements as.
func (t *types) of(d *backend.Datatype) (libmpi.Type, error) {
	if h := t.number(d); h != 0 {
		return h, nil
	}
	return t.bytes(d.Size)
}

// bytes returns the type of size bytes.
func (t *types) bytes(size int) (libmpi.Type, error) {
	t.mu.RLock()
	h, ok := t.sizes[size]
	t.mu.RUnlock()
	if ok {
		return h, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := t.sizes[size]; ok {
		return h, nil
	}
	h, code := libmpi.TypeBytes(size)
	if code != 0 {
		return 0, libmpi.Error(code)
	}
	t.sizes[size] = h
	return h, nil
}

// free releases the types that were made. MPICH reports them as leaks otherwise.
func (t *types) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for size, h := range t.sizes {
		if size != 1 { // predefined
			h.Free()
		}
	}
	t.sizes = nil
}

// ops holds the library's operations.
type ops struct {
	predefined [backend.OpMaxLoc + 1]libmpi.Op
	wrong      [backend.OpMaxLoc + 1][backend.Loc + 1]bool // mpiquirks.Quirks.WrongOps

	mu   sync.Mutex
	idle []*userOp // made before and not in use, the latest last
}

// userOp is an operation whose function is written in Go.
type userOp struct {
	handle   libmpi.Op
	slot     int
	commutes bool
	size     int
	apply    func(in, inout []byte) // set while in use
}

func (o *ops) init(q mpiquirks.Quirks) {
	for op, kind := range q.WrongOps() {
		o.wrong[op][kind] = true
	}
	for c := backend.OpSum; c <= backend.OpBxor; c++ {
		o.predefined[c] = libmpi.OpOf(int(c))
	}
}

// native returns the library's operation if its results are those of cohort, else 0. Minima and
// maxima of floats are cohort's: the standard does not define them for NaN and signed zeros.
func (o *ops) native(op *backend.Op) libmpi.Op {
	switch op.Type.Kind {
	case backend.Bool, backend.Int8, backend.Int16, backend.Int32, backend.Int64,
		backend.Uint8, backend.Uint16, backend.Uint32, backend.Uint64:
	case backend.Float32, backend.Float64, backend.Complex64, backend.Complex128:
		if op.Code != backend.OpSum && op.Code != backend.OpProd {
			return 0
		}
	default:
		return 0
	}
	if o.wrong[op.Code][op.Type.Kind] {
		return 0
	}
	return o.predefined[op.Code]
}

func (o *ops) needsCallback(op *backend.Op) bool { return o.native(op) == 0 }

// take returns an operation of the library that calls apply. The caller has it alone until give.
func (o *ops) take(op *backend.Op, apply func(in, inout []byte)) (*userOp, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := op.Type.Size
	for i := len(o.idle) - 1; i >= 0; i-- {
		if u := o.idle[i]; u.size == size && u.commutes == op.Commutative {
			o.idle = append(o.idle[:i], o.idle[i+1:]...)
			u.apply = apply
			return u, nil
		}
	}
	u := &userOp{commutes: op.Commutative, size: size, apply: apply}
	for {
		h, slot, ok, code := libmpi.NewOp(u.commutes, size, func(in, inout []byte) { u.apply(in, inout) })
		if code != 0 {
			return nil, libmpi.Error(code)
		}
		if ok {
			u.handle, u.slot = h, slot
			return u, nil
		}
		if len(o.idle) == 0 {
			return nil, backend.Faultf(backend.ErrAlloc, "%d reductions with operations in Go are in progress, the maximum; wait for one of them", libmpi.UserOps)
		}
		libmpi.FreeOp(o.idle[0].handle, o.idle[0].slot)
		o.idle = o.idle[1:]
	}
}

func (o *ops) give(u *userOp) {
	u.apply = nil
	o.mu.Lock()
	o.idle = append(o.idle, u)
	o.mu.Unlock()
}

// free releases the operations that are not in use.
func (o *ops) free() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, u := range o.idle {
		libmpi.FreeOp(u.handle, u.slot)
	}
	o.idle = nil
}
