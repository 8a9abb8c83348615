// Package gputest tries scripts/gpu-test: that it builds, what it says of a machine without a GPU, and what
// it makes of the output of tests and benchmarks.
package gputest
