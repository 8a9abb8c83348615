//go:build race

package cuda

// raceEnabled reports whether the race detector is enabled. Pools then forget at random, so that
// calls allocate.
const raceEnabled = true
