// Package arch has the tests of what holds for the repository as a whole: who
// imports whom, where unsafe and cgo may be, what the documents list. There is
// nothing in it but tests; docs/design.md explains the rules.
package arch
