//go:build !race

package cohorttest

const racing = false
