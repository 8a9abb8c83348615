//go:build interleave

package flight

import "github.com/cohort-hpc/cohort/internal/word"

// Slots is how many operations a ring holds: few, so that goroutines meet in a record.
const Slots = 2

// release stores a word. It is visible at once: stores become visible in their order, and no goroutine waits for another.
func release(p *uint64, v uint64) { word.StoreUint64(p, v) }
