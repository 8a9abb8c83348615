package loggp

// Link describes messages of one kind, in seconds.
type Link struct {
	L       float64 // from the sender's network port to the receiver's, for one byte
	O       float64 // processor time of a message, on each side
	PerByte float64 // processor time of a byte, on each side
	Gap     float64 // time of a message in a port
	PerGap  float64 // time of a byte in a port
}

// Message returns the time of one message of k bytes between two ranks that do nothing else.
func (l *Link) Message(k int) float64 {
	return 2*l.O + l.L + float64(k)*max(l.PerByte, l.PerGap)
}

// Machine describes nodes of equally many ranks each, and what is between them.
type Machine struct {
	Ranks  int  // of a node, consecutive ones
	Cores  int  // of a node; 0: as many as ranks
	Inside Link // each rank has its own ports inside its node
	Across Link // the ranks of a node share one port out and one in
	Copy   float64
	Reduce float64 // processor time of a byte that is copied, or reduced
	Round  float64 // processor time of a round
}

// network is one of 25 Gb/s with TCP, of whose bandwidth a program gets 20.
var network = Link{L: 6e-6, O: 3e-6, PerByte: 0.15e-9, Gap: 0.2e-6, PerGap: 0.4e-9}

// Cluster returns a machine of nodes with ranks each on a network of 25 Gb/s with TCP. The costs by which
// package coll chooses algorithms are those of this machine.
func Cluster(ranks int) *Machine {
	return &Machine{
		Ranks: ranks, Across: network, Inside: Link{L: 0.2e-6, O: 0.1e-6, PerByte: 0.1e-9},
		Copy: 0.1e-9, Reduce: 0.15e-9, Round: 0.2e-6,
	}
}
