package mutants

// The ring of the flight recorder: internal/flight.
var flightMutants = []mutant{
	{file: "internal/flight/ring.go",
		old: `		swap(&p.first, was, t|uint64(mark))`,
		new: `		func() bool { release(&p.first, t|uint64(mark)); return true }()`,
		why: "two goroutines write one record", test: "internal/flight TestInterleaveRing"},
	{file: "internal/flight/ring.go",
		old: `	return was&^uint64(later) < t &&`,
		new: `	return was&^uint64(later) <= t &&`,
		why: "two operations have one ticket", test: "internal/flight TestInterleaveRing"},
	{file: "internal/flight/ring.go",
		old: `	return c, c.first == c.last && c.last != 0`,
		new: `	return c, c.last != 0`,
		why: "a record is read while it is written", test: "internal/flight TestInterleaveRing"},
}
