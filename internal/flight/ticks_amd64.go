package flight

const hasTicks = true

// ticks reads the time stamp counter.
func ticks() uint64
