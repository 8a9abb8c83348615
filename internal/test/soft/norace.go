//go:build !race

package soft

// raced reports whether the race detector is enabled.
const raced = false
