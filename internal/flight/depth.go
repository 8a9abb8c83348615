//go:build !interleave

package flight

import "github.com/cohort-hpc/cohort/internal/word"

// Slots is how many operations a ring holds.
const Slots = 1024

// release stores a word after everything that was stored before.
func release(p *uint64, v uint64) { word.ReleaseUint64(p, v) }

func load(p *uint64) uint64 { return word.LoadUint64(p) }

func swap(p *uint64, was, is uint64) bool { return word.CompareAndSwapUint64(p, was, is) }
