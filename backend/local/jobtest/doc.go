// Package jobtest tests the local backend by whole jobs: the conformance suite, random faults, and results
// with the same bits.
//
// These tests are apart from the others of the backend because package cohorttest takes long to compile. Go
// compiles it again for each package with tests of its own that cohorttest imports.
package jobtest
