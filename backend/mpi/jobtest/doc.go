// Package jobtest tests the mpi backend by whole jobs under the launchers of MPI libraries: the conformance suite,
// random faults, and what programs do with each library.
//
// It is a package apart for the reason given in backend/local/jobtest.
package jobtest
