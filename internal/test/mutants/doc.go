// Package mutants shows that the explorations of protocols find faults: each mutant is one change of the production
// code, and one exploration or test fails with it.
package mutants
