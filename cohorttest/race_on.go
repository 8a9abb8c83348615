//go:build race

package cohorttest

// racing makes the matrix the smaller one: under the race detector everything
// takes many times as long.
const racing = true
