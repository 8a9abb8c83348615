//go:build race

package sched_test

// Under the race detector pools drop what they hold at random, so that
// allocations say nothing.
func init() { racing = true }
