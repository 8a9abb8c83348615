// Package jobtest tests the shm backend by whole jobs: the conformance suite, random faults, and results
// with the same bits as on local.
//
// It is a package apart for the reason given in backend/local/jobtest.
package jobtest
