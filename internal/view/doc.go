// Package view looks at slices of one element type as bytes and the other way
// round, without copying.
package view
