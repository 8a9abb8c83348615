// Package gputest tests scripts/gpu-test: the programs it builds, its answer on a machine without a
// GPU, and the report it makes from the output of tests and benchmarks.
package gputest
