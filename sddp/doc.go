// Package sddp plans the operation of a hydrothermal power system by stochastic dual dynamic
// programming (Pereira and Pinto, 1991): the reference application of cohort.
//
// A [Case] is read from a folder of JSON files ([LoadCase]), [Train] makes a [Policy] for it on
// the ranks of a communicator, and [Simulate] runs a policy over many inflow scenarios. docs/sddp.md
// describes the case format, the method, and the files written.
//
// # Any number of ranks and threads, the same bits
//
// Each rank computes with as many threads as [Options] say. A policy is a function of the case and of
// the other options, bit for bit on one architecture: the number of ranks, that of their threads, and
// the backend do not enter. Three rules make it so. Random numbers are a
// function of what they are for, never of who draws them ([Noise]). Cuts enter the pool in the
// order iteration, forward pass, whoever computed them. Every linear program starts from a basis
// that depends on that program alone (docs/adr/0004-canonical-basis.md).
//
// # Memory
//
// Inflows and cuts are once per node while a training or simulation runs, in shared regions of
// package cohort; a training's policy has its cuts in memory of its own.
//
// # Errors
//
// An error that all ranks can know of, as a case that cannot be read, is the same on all. Where
// one rank alone fails, it says so in the next exchange, and all of them return an error in the
// same place; the others' wraps [ErrPeer] and names the rank.
package sddp
