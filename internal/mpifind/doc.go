// Package mpifind finds MPI on this machine without loading any of it: the libraries and their ABIs,
// the launcher that started this process, and the launcher that belongs to a library.
//
// It reads only a file's ELF header and dynamic symbols and never runs code of a library, because a
// process must load exactly one. On systems without ELF it finds nothing.
package mpifind
