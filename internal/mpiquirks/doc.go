// Package mpiquirks knows how the MPI libraries of different makers differ: their versions, their defects
// ([Quirks]), and the variables that set them up ([Settings]).
package mpiquirks
