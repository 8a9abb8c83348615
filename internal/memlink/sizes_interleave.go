//go:build interleave

package memlink

// The sizes of sizes.go, small enough to explore.
const (
	cells      = 4
	chunkMin   = 8
	chunkMax   = 128 << 10
	chunkAlign = 8
)
