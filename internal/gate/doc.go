// Package gate counts the goroutines that use something, so that it is closed, freed or unmapped only when nobody uses
// it any more. Windows, communicators and mappings have gates.
package gate
