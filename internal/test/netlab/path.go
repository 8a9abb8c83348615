package netlab

import "time"

// A Path describes the effects on packets from one host to another. The zero value has none.
// Probabilities are from 0 to 1 and apply to each packet separately.
type Path struct {
	Delay  time.Duration // of every packet
	Jitter time.Duration // at most added to it: packets overtake each other

	Loss      float64
	Duplicate float64

	Reorder float64       // the packet is held back, and others overtake it,
	Hold    time.Duration // for this time

	// Corrupt flips one bit of a TCP segment's payload. The receiver's kernel drops the segment, unless
	// Repair corrects the checksum, as a faulty host would: then only an application checksum finds it.
	Corrupt float64
	Repair  bool

	Bandwidth float64 // bytes a second; 0 for no limit
	Queue     int     // most bytes that wait for it, others are lost; 0 means 256 KiB

	Cut bool // nothing passes
}

// Count counts the packets from one host to another.
type Count struct {
	Packets, Bytes int // that the sender's host has sent; bytes with the headers of IP

	Lost, Duplicated, Held, Corrupted int // of these packets
}
