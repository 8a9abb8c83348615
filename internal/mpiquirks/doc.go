// Package mpiquirks knows how the implementations of MPI differ: their versions, their defects
// ([Quirks]), and the variables that set them up ([Settings]).
package mpiquirks
