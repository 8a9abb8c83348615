//go:build race

package soft

// raced reports whether the race detector, which watches only Go memory, is enabled.
const raced = true
