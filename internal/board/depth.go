//go:build !interleave

package board

import "github.com/cohort-hpc/cohort/internal/word"

const (
	ahead     = 7
	slotsDeep = 16 // at least 2*ahead+2, and a power of two
)

// releaseGate stores a gate after everything that was stored before.
func releaseGate(p *uint32, v uint32) { word.ReleaseUint32(p, v) }

// release stores a key after everything that was stored before.
func release(p *uint64, v uint64) { word.ReleaseUint64(p, v) }
