package gate

// Tallied is a Gate with a tally of what those inside have done. It is for backend/mpi, where a communicator counts its
// messages on their way: to leave and to count is one atomic addition, so that a message pays for no second one.
//
// The tally is bits 32 to 63 of count, modulo 2^32. Only callers inside change it, so it stays once the gate is empty.
type Tallied struct{ Gate }

const talliedAt = 32

// LeaveWith takes the caller out and adds n to the tally.
func (g *Tallied) LeaveWith(n int) { g.leave(uint64(n) << talliedAt) }

// Count adds n to the tally.
func (g *Tallied) Count(n int) { g.count.Add(uint64(n) << talliedAt) }

// Tally returns the tally.
func (g *Tallied) Tally() int32 { return int32(g.count.Load() >> talliedAt) }
