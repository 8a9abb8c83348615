// Package libmpi loads an MPI library at run time and calls it.
//
// It is the only package with C. Nothing of MPI is needed to build it: mpi.table lists the functions and
// constants of the three ABIs there are (MPICH's, Open MPI's, and the standard one of MPI-5), package gen
// makes C headers of it, and the shim, ordinary MPI code, is compiled once for each. A process loads
// one library, once, and never unloads it.
//
// The functions here are thin: one crossing into C each, no allocation, codes instead of errors. Package
// backend/mpi makes a backend of them.
package libmpi
