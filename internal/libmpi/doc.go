// Package libmpi loads an MPI library at run time and calls it.
//
// It is the only package with C, and building it needs no MPI. mpi.table lists the functions
// and constants of the three ABIs (MPICH's, Open MPI's, and the standard one of MPI-5). Package gen
// generates C headers from it, and the shim, which is ordinary MPI code, is compiled once for each
// ABI. A process loads one library, once, and never unloads it.
//
// The functions are thin: each makes one call into C, allocates nothing, and returns a code instead of
// an error. Package backend/mpi builds a backend on them.
package libmpi

//go:generate go run ./gen
