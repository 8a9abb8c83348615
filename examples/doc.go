// Package examples holds small programs, one folder and one idea each:
//
//	hello      join a job and say where this rank runs
//	ring       messages between neighbors, of a length the receiver does not know
//	pi         a sum whose bits do not depend on the number of ranks
//	heat2d     a grid split over a Cartesian communicator, with halo exchange
//	window     a table that is in memory once per node, and that its ranks fill together
//	hashtable  a hash table that is spread over all ranks
//	hdf5       a file that a C library for MPI writes from all ranks (a module apart; needs -tags hdf5)
//	render     a picture whose tiles rank 0 hands out one by one
//	hybrid     ranks times threads: a pool of workers in every rank
//	elastic    a lost rank is replaced, and gets the state of the others
//
// Two more are in gonum/examples, because they need that module:
//
//	fft3d  a transform in three dimensions, whose ranks exchange blocks by layouts
//	ddp    a network trained data-parallel: gradients averaged while others are computed
//
// Each runs alone, as a job of one rank, or on several:
//
//	go run ./examples/pi
//	go run ./cmd/cohort run -n 4 ./examples/pi
package examples
