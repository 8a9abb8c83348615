// Package loggp predicts how long a collective takes. It simulates the ranks' schedules, as package coll
// builds them, on a [Machine] of given times and bandwidths.
//
// A message of k bytes costs its sender O + k PerByte of processor time. After O its first byte enters the
// network, and arrives L later. A network port carries one message at a time in each direction, for k PerGap,
// at least Gap. The receiver spends O + k PerByte from the first byte on, and ends no earlier than O after the
// last one. That is the LogGPS model with processor time per byte, and without synchronization: receivers
// are assumed to be ready for long messages.
//
// Alexandrov, Ionescu, Schauser, Scheiman: LogGP: incorporating long messages into the LogP model. SPAA
// 1995. Hoefler, Schneider, Lumsdaine: LogGOPSim: simulating large-scale applications in the LogGOPS model.
// HPDC 2010.
//
// A rank's schedule may have as many rounds as there are ranks, which is too much for 65 536 ranks. Where
// the schedules differ only in the numbers of the ranks, one rank, or the ranks of one node, stand for
// all: see [Program].
package loggp
