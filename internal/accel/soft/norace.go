//go:build !race

package soft

// raced says that the race detector is there.
const raced = false
