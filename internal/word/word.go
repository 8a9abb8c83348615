//go:build !interleave

package word

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/internal/release"
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

// AddUint32 is atomic.AddUint32.
func AddUint32(p *uint32, d uint32) uint32 { return atomic.AddUint32(p, d) }

// CompareAndSwapUint32 is atomic.CompareAndSwapUint32.
func CompareAndSwapUint32(p *uint32, was, is uint32) bool {
	return atomic.CompareAndSwapUint32(p, was, is)
}

// CompareAndSwapUint64 is atomic.CompareAndSwapUint64.
func CompareAndSwapUint64(p *uint64, was, is uint64) bool {
	return atomic.CompareAndSwapUint64(p, was, is)
}

// ReleaseUint32 stores v in a word that others read atomically. Everything that the caller has stored before is visible
// to a reader that sees v. On amd64 this is a plain store: the caller may read other words before others see v. An
// atomic operation that writes, between the store and the read, prevents that.
func ReleaseUint32(p *uint32, v uint32) { release.Uint32(p, v) }

// ReleaseUint64 is ReleaseUint32 of a longer word.
func ReleaseUint64(p *uint64, v uint64) { release.Uint64(p, v) }

// Copy is copy for a payload that another party writes or reads at other times.
func Copy(dst, src []byte) int { return copy(dst, src) }

// Reads says that the caller reads a payload.
func Reads([]byte) {}

// Writes says that the caller writes a payload.
func Writes([]byte) {}

// Reading says that the caller reads a value that is no slice and that others write.
func Reading(any) {}

// Writing says that the caller writes a value that is no slice and that others read.
func Writing(any) {}

// Storing says that the caller is about to store a word of another package, which p points to.
func Storing(p any) {}

// WritesAt says that the caller writes n bytes at an address of another process.
func WritesAt(addr uint64, n int) {}

// Freed says that nobody may touch some memory from now on, because it is about to be unmapped or reused.
func Freed([]byte) {}

// Yield lets other goroutines run. It is for loops that poll and do nothing else. In an exploration the caller goes on
// when a word that it has read since its last Yield has changed.
func Yield() { runtime.Gosched() }

// Spins returns how often a loop looks before it gives up: n, but 1 in an exploration.
func Spins(n int) int { return n }

// Go starts a goroutine.
func Go(f func()) { go f() }
