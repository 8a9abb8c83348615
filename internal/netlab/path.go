package netlab

import "time"

// A Path is what packets from one host to another meet. The zero value is a path on which nothing
// happens to them. Probabilities are from 0 to 1, for each packet by itself.
type Path struct {
	Delay  time.Duration // of every packet
	Jitter time.Duration // up to so much more: packets overtake each other

	Loss      float64
	Duplicate float64

	Reorder float64       // the packet is held back, and others overtake it:
	Hold    time.Duration // for so long

	// Corrupt flips one bit of a TCP segment's payload. The receiver's kernel drops the segment, unless
	// Repair corrects the checksum, as a faulty host would: then only an application checksum finds it.
	Corrupt float64
	Repair  bool

	Bandwidth float64 // bytes a second; 0 for no limit
	Queue     int     // bytes that wait for it at most, others are lost; 0 is 256 KiB

	Cut bool // nothing passes
}

// Count counts the packets from one host to another.
type Count struct {
	Packets, Bytes int // that the sender's host has sent; bytes with the headers of IP

	Lost, Duplicated, Held, Corrupted int // of these packets
}
