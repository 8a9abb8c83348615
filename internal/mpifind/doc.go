// Package mpifind finds out about MPI on this machine without loading any of it:
// which libraries there are and of which ABI, which launcher started this
// process, and which launcher belongs to a library.
//
// What it says of a library comes from the file's ELF header and dynamic symbols
// and from nothing else, so that looking never runs code of the library: a
// process must load exactly one. On systems without ELF it finds nothing.
package mpifind
