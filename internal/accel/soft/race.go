//go:build race

package soft

// raced says that the race detector is there, which looks at Go's memory alone.
const raced = true
