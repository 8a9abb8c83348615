// Package jobtest tests the local backend by whole jobs: the conformance suite, random faults, and results
// with the same bits.
//
// These tests are apart from the others of the backend because package cohorttest takes long to compile. Go
// compiles it again for each package that cohorttest imports and that has tests.
package jobtest
