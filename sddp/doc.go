// Package sddp plans the operation of a hydrothermal power system by stochastic dual dynamic
// programming (Pereira and Pinto, 1991). It is the reference application of cohort.
//
// [LoadCase] reads a [Case] from a folder of JSON files, [Train] computes a [Policy] for it on the
// ranks of a communicator, and [Simulate] runs a policy over many inflow scenarios. sddp/model.md
// describes the case format and the method. Package report presents the results, and sddp/README.md describes
// its files.
//
// # The same bits for any number of ranks and threads
//
// A policy is a function of the case and of the options that define the training, bit for bit on one
// architecture. It does not depend on the number of ranks, on their threads, or on the backend.
// Three rules ensure this:
//
//   - A random number is a function of its purpose, not of the rank that draws it ([Noise]).
//   - Cuts enter the pool by iteration and forward pass, whichever rank computed them.
//   - Every linear program starts from a basis that depends on that program alone
//     (docs/adr/0004-canonical-basis.md).
//
// # Memory
//
// During a training or a simulation each node holds one copy of the inflows and the cuts, in shared
// regions of package cohort. The policy of a training has its own copy of the cuts.
//
// # Errors
//
// If rank 0 cannot read a case, the errors of the other ranks have the text of its error.
// When one rank fails alone, it reports this in the next exchange and all ranks return an error
// there. The errors of the other ranks wrap [ErrPeer] and name the rank that failed.
package sddp
