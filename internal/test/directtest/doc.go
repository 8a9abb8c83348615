// Package directtest makes calls of every collective together with the results
// they must have, for tests of whoever carries out a backend.Call.
//
// The results come from the definitions in MPI-4.1 chapter 6, element by
// element, and share no code with what is tested.
package directtest
