//go:build !interleave

package memlink

const (
	cells = 64 // of each ring; a power of two

	// A chunk is the bytes of one claim: long enough to be worth a system call, short enough to share. The longest
	// takes about 10 µs, with the engine's lock held.
	chunkMin   = 16 << 10
	chunkMax   = 128 << 10
	chunkAlign = 4 << 10
)
