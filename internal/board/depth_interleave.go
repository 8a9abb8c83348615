//go:build interleave

package board

import "github.com/cohort-hpc/cohort/internal/word"

// Few calls use all slots when interleavings are explored.
const (
	ahead     = 1
	slotsDeep = 4
)

// ordered makes keys visible at once, for explorations of many calls.
var ordered bool

func releaseGate(p *uint32, v uint32) {
	if ordered {
		word.StoreUint32(p, v)
	} else {
		word.ReleaseUint32(p, v)
	}
}

func release(p *uint64, v uint64) {
	if ordered {
		word.StoreUint64(p, v)
	} else {
		word.ReleaseUint64(p, v)
	}
}
