package coll

// Space names one of the buffers a schedule works on.
type Space uint8

// The buffers: the caller's, and scratch memory of Schedule.Scratch bytes.
const (
	Send Space = iota // the call's Send; read only, except for Scatter in place
	Recv              // the call's Recv
	Temp              // scratch
)

// Region is a part of a buffer, in bytes.
type Region struct {
	Space  Space
	Off, N int
}

// Kind is what an Action does.
type Kind uint8

// The actions.
const (
	SendTo    Kind = iota // send A to Peer
	RecvFrom              // receive from Peer into Dst, exactly Dst.N bytes
	Copy                  // Dst = A; they do not overlap
	Reduction             // Dst = A op B; A is the operand of the lower ranks; Dst may be A or B
)

// Action is one step of one rank.
type Action struct {
	Kind Kind
	Peer int
	A, B Region
	Dst  Region
}

// Round is what a rank does between two waits: it starts all Comm actions at once, waits
// until all are complete, and then does the Local ones in order. Between two ranks,
// messages match in the order of rounds and, within a round, of Comm. A region that a
// round receives into overlaps no other region that it sends or receives, so it does not
// matter when in the round the bytes move.
type Round struct {
	Comm  []Action // SendTo and RecvFrom; may be empty
	Local []Action // Copy and Reduction
}

// Schedule is one rank's part of one collective. It never changes and may be
// run any number of times, by one runner at a time.
type Schedule struct {
	Algorithm string // for traces and docs: "allreduce/rabenseifner"
	Rounds    []Round
	Scratch   int // bytes of Temp, a multiple of 64; Temp is aligned for every element type
}
