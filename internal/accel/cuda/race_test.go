//go:build race

package cuda

// raceEnabled says that pools forget at random, so that calls allocate.
const raceEnabled = true
