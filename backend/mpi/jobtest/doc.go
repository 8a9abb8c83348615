// Package jobtest tests the mpi backend by whole jobs under the launchers of MPI libraries: the conformance suite,
// random faults, and what programs do with each library.
//
// Files break_… try to break what the documentation promises: messages in order, no allocations, an orderly end. Files
// canary_… look for bytes written outside of buffers, and files storm_… run random programs.
//
// It is a package apart for the reason given in backend/local/jobtest.
package jobtest
