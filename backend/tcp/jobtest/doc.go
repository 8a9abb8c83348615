// Package jobtest tests the tcp backend by whole jobs: the conformance suite, random faults, TLS, and hosts
// between which packets are lost or nothing arrives at all.
//
// It is a package apart for the reason given in backend/local/jobtest.
package jobtest
