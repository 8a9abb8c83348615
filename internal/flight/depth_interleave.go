//go:build interleave

package flight

import (
	"sync/atomic"

	"github.com/cohort-hpc/cohort/internal/word"
)

// Slots is how many operations a ring holds: few, so that goroutines meet in a record.
const Slots = 2

// explored says that a test explores the recorder. In explorations of other packages its words, which hold times, are hidden:
// no operation waits for the recorder.
var explored bool

// release stores a word. It is visible at once: stores become visible in their order, and no goroutine waits for another.
func release(p *uint64, v uint64) {
	if explored {
		word.StoreUint64(p, v)
	} else {
		atomic.StoreUint64(p, v)
	}
}

func load(p *uint64) uint64 {
	if explored {
		return word.LoadUint64(p)
	}
	return atomic.LoadUint64(p)
}

func swap(p *uint64, was, is uint64) bool {
	if explored {
		return word.CompareAndSwapUint64(p, was, is)
	}
	return atomic.CompareAndSwapUint64(p, was, is)
}
