// Package loggp predicts how long a collective takes: it simulates the ranks' schedules, as package coll
// builds them, on a machine that a few times and bandwidths describe.
//
// A message of k bytes costs its sender O + k PerByte of processor time. After O its first byte enters the
// network, where it takes L, and k Gap for all bytes to follow. The receiver spends O + k PerByte once the
// first byte is there, and ends no earlier than O after the last one. The messages of one network port,
// in or out, follow each other. That is the LogGPS model with processor time per byte, without
// synchronization: receivers are taken to be ready for long messages.
//
// Alexandrov, Ionescu, Schauser, Scheiman: LogGP: incorporating long messages into the LogP model. SPAA
// 1995. Hoefler, Schneider, Lumsdaine: LogGOPSim: simulating large-scale applications in the LogGOPS model.
// HPDC 2010.
//
// A rank's schedule may have as many rounds as there are ranks, which is too much for 65 536 ranks. Where
// the ranks' schedules are the same but for the numbers of the ranks, one rank, or the ranks of one node,
// stand for all: see [Program].
package loggp
