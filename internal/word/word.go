//go:build !interleave

package word

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Exploring reports whether this build can explore interleavings.
const Exploring = false

// The words, and the lock, are those of sync/atomic and sync.
type (
	Uint32         = atomic.Uint32
	Uint64         = atomic.Uint64
	Int32          = atomic.Int32
	Int64          = atomic.Int64
	Bool           = atomic.Bool
	Pointer[T any] = atomic.Pointer[T]
	Mutex          = sync.Mutex
)

// LoadUint32 is atomic.LoadUint32.
func LoadUint32(p *uint32) uint32 { return atomic.LoadUint32(p) }

// LoadUint64 is atomic.LoadUint64.
func LoadUint64(p *uint64) uint64 { return atomic.LoadUint64(p) }

// StoreUint32 is atomic.StoreUint32.
func StoreUint32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// StoreUint64 is atomic.StoreUint64.
func StoreUint64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// CompareAndSwapUint32 is atomic.CompareAndSwapUint32.
func CompareAndSwapUint32(p *uint32, was, is uint32) bool {
	return atomic.CompareAndSwapUint32(p, was, is)
}

// CompareAndSwapUint64 is atomic.CompareAndSwapUint64.
func CompareAndSwapUint64(p *uint64, was, is uint64) bool {
	return atomic.CompareAndSwapUint64(p, was, is)
}

// ReleaseUint32 stores v in a word that others read atomically, after everything that was stored before. On amd64
// it is a plain store: this processor may read other words before the others see it. An atomic operation between
// the two forbids that.
func ReleaseUint32(p *uint32, v uint32) { shmem.ReleaseUint32(p, v) }

// ReleaseUint64 is ReleaseUint32 of a longer word.
func ReleaseUint64(p *uint64, v uint64) { shmem.ReleaseUint64(p, v) }

// Copy is copy, of a payload that another party writes or reads at other times.
func Copy(dst, src []byte) int { return copy(dst, src) }

// Glance copies a payload that another party may be overwriting. The caller then confirms that it was not, and
// uses nothing of the copy before.
func Glance(dst, src []byte) int { return copy(dst, src) }

// Reads says that the caller reads a payload.
func Reads([]byte) {}

// Writes says that the caller writes a payload.
func Writes([]byte) {}

// Reading and Writing say the same of a value that is no slice.
func Reading(any) {}

// Writing says that the caller writes a value that others read.
func Writing(any) {}

// WritesAt says that the caller writes n bytes at an address of another process.
func WritesAt(addr uint64, n int) {}

// Freed says that nobody may touch some memory any more, because it is about to be unmapped or used otherwise.
func Freed([]byte) {}

// Yield lets other goroutines run. In the explorer the caller goes on when a word that it has read since its last
// Yield has changed: the body of a loop that polls has no other effect.
func Yield() { runtime.Gosched() }

// Nap is Yield for a loop that polls now and then: it sleeps.
func Nap(d time.Duration) { time.Sleep(d) }

// Spins returns how often a loop looks before it gives up: n, but once in the explorer.
func Spins(n int) int { return n }

// Go starts a goroutine.
func Go(f func()) { go f() }
