// Package mpitest starts programs as the ranks of MPI jobs, for tests.
package mpitest
