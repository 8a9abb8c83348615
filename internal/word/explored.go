//go:build interleave

package word

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/release"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Exploring reports whether this build can explore interleavings.
const Exploring = true

// The words have the layout of those in normal builds.
type (
	Uint32         struct{ v atomic.Uint32 }
	Uint64         struct{ v atomic.Uint64 }
	Int32          struct{ v atomic.Int32 }
	Int64          struct{ v atomic.Int64 }
	Bool           struct{ v atomic.Bool }
	Pointer[T any] struct{ v atomic.Pointer[T] }
)

func store[V any](loc any, store func(V), v V) {
	interleave.Update("store", loc, func() (struct{}, bool) { store(v); return struct{}{}, true })
}

func update[V any](op string, loc any, f func() V) V {
	return interleave.Update(op, loc, func() (V, bool) { return f(), true })
}

func swap[V any](loc any, cas func(was, is V) bool, was, is V) bool {
	return interleave.Update("compare-and-swap", loc, func() (bool, bool) { ok := cas(was, is); return ok, ok })
}

func (x *Uint32) Load() uint32   { return interleave.Load(&x.v, x.v.Load) }
func (x *Uint32) Store(v uint32) { store(&x.v, x.v.Store, v) }
func (x *Uint32) Add(d uint32) uint32 {
	return update("add", &x.v, func() uint32 { return x.v.Add(d) })
}
func (x *Uint32) Or(m uint32) uint32 { return update("or", &x.v, func() uint32 { return x.v.Or(m) }) }
func (x *Uint32) Swap(v uint32) uint32 {
	return update("swap", &x.v, func() uint32 { return x.v.Swap(v) })
}
func (x *Uint32) CompareAndSwap(was, is uint32) bool {
	return swap(&x.v, x.v.CompareAndSwap, was, is)
}

func (x *Uint64) Load() uint64   { return interleave.Load(&x.v, x.v.Load) }
func (x *Uint64) Store(v uint64) { store(&x.v, x.v.Store, v) }
func (x *Uint64) Add(d uint64) uint64 {
	return update("add", &x.v, func() uint64 { return x.v.Add(d) })
}
func (x *Uint64) Or(m uint64) uint64 { return update("or", &x.v, func() uint64 { return x.v.Or(m) }) }
func (x *Uint64) CompareAndSwap(was, is uint64) bool {
	return swap(&x.v, x.v.CompareAndSwap, was, is)
}

func (x *Int32) Load() int32       { return interleave.Load(&x.v, x.v.Load) }
func (x *Int32) Store(v int32)     { store(&x.v, x.v.Store, v) }
func (x *Int32) Add(d int32) int32 { return update("add", &x.v, func() int32 { return x.v.Add(d) }) }

func (x *Int64) Load() int64       { return interleave.Load(&x.v, x.v.Load) }
func (x *Int64) Store(v int64)     { store(&x.v, x.v.Store, v) }
func (x *Int64) Add(d int64) int64 { return update("add", &x.v, func() int64 { return x.v.Add(d) }) }

func (x *Bool) Load() bool       { return interleave.Load(&x.v, x.v.Load) }
func (x *Bool) Store(v bool)     { store(&x.v, x.v.Store, v) }
func (x *Bool) Swap(v bool) bool { return update("swap", &x.v, func() bool { return x.v.Swap(v) }) }
func (x *Bool) CompareAndSwap(was, is bool) bool {
	return swap(&x.v, x.v.CompareAndSwap, was, is)
}

func (x *Pointer[T]) Load() *T     { return interleave.Load(&x.v, x.v.Load) }
func (x *Pointer[T]) Store(v *T)   { store(&x.v, x.v.Store, v) }
func (x *Pointer[T]) Swap(v *T) *T { return update("swap", &x.v, func() *T { return x.v.Swap(v) }) }
func (x *Pointer[T]) CompareAndSwap(was, is *T) bool {
	return swap(&x.v, x.v.CompareAndSwap, was, is)
}

func LoadUint32(p *uint32) uint32 {
	return interleave.Load(p, func() uint32 { return atomic.LoadUint32(p) })
}

func LoadUint64(p *uint64) uint64 {
	return interleave.Load(p, func() uint64 { return atomic.LoadUint64(p) })
}

func StoreUint32(p *uint32, v uint32) { store(p, func(v uint32) { atomic.StoreUint32(p, v) }, v) }
func StoreUint64(p *uint64, v uint64) { store(p, func(v uint64) { atomic.StoreUint64(p, v) }, v) }

func AddUint32(p *uint32, d uint32) uint32 {
	return update("add", p, func() uint32 { return atomic.AddUint32(p, d) })
}

func CompareAndSwapUint32(p *uint32, was, is uint32) bool {
	return swap(p, func(was, is uint32) bool { return atomic.CompareAndSwapUint32(p, was, is) }, was, is)
}

func CompareAndSwapUint64(p *uint64, was, is uint64) bool {
	return swap(p, func(was, is uint64) bool { return atomic.CompareAndSwapUint64(p, was, is) }, was, is)
}

func ReleaseUint32(p *uint32, v uint32) {
	interleave.Release(p, v, func() { release.Uint32(p, v) })
}

func ReleaseUint64(p *uint64, v uint64) {
	interleave.Release(p, v, func() { release.Uint64(p, v) })
}

// Mutex is sync.Mutex. In an exploration held says whether a thread has it.
type Mutex struct {
	mu   sync.Mutex
	held bool
}

func (m *Mutex) Lock() {
	if !interleave.Lock(&m.held) {
		m.mu.Lock()
	}
}

func (m *Mutex) TryLock() bool {
	if got, explored := interleave.TryLock(&m.held); explored {
		return got
	}
	return m.mu.TryLock()
}

func (m *Mutex) Unlock() {
	if !interleave.Unlock(&m.held) {
		m.mu.Unlock()
	}
}

func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	interleave.Payload(src[:n], false)
	interleave.Payload(dst[:n], true)
	return copy(dst, src)
}

func Reads(b []byte)              { interleave.Payload(b, false) }
func Writes(b []byte)             { interleave.Payload(b, true) }
func Reading(p any)               { interleave.Value(p, false) }
func Writing(p any)               { interleave.Value(p, true) }
func Storing(p any)               { store(p, func(struct{}) {}, struct{}{}) }
func WritesAt(addr uint64, n int) { interleave.PayloadAt(addr, n, true) }
func Freed(b []byte)              { interleave.Freed(b) }

func Yield() {
	if !interleave.Yield() {
		runtime.Gosched()
	}
}

func Spins(n int) int {
	if interleave.Running() {
		return 1
	}
	return n
}

func Go(f func()) {
	if !interleave.Start("goroutine", f) {
		go f()
	}
}

func FutexWait(w *Uint32, old uint32, timeout time.Duration) {
	if !interleave.Sleep(&w.v, func() bool { return w.v.Load() == old }, timeout > 0) {
		shmem.FutexWait(&w.v, old, timeout)
	}
}

func FutexWake(w *Uint32, n int) {
	if !interleave.Wake(&w.v, n) {
		shmem.FutexWake(&w.v, n)
	}
}

// A Parker behaves as in normal builds. In an exploration the explorer uses token, otherwise c is used.
type Parker struct {
	token bool
	c     chan struct{}
}

func NewParker() *Parker { return &Parker{c: make(chan struct{}, 1)} }

func (p *Parker) Park(timeout time.Duration) bool {
	if got, explored := interleave.Park(&p.token, timeout > 0); explored {
		return got
	}
	var end <-chan time.Time
	if timeout > 0 {
		end = time.After(timeout)
	}
	select {
	case <-p.c:
		return true
	case <-end:
		return false
	}
}

func (p *Parker) Unpark() {
	if interleave.Unpark(&p.token) {
		return
	}
	select {
	case p.c <- struct{}{}:
	default:
	}
}

func (p *Parker) Drop() {
	if interleave.Drop(&p.token) {
		return
	}
	select {
	case <-p.c:
	default:
	}
}
