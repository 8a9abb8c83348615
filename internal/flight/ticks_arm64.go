package flight

const hasTicks = true

// ticks reads the virtual counter.
func ticks() uint64
