// Package datatype describes Go types as datatypes, by which the other packages know elements, and has the
// predefined reductions of their elements.
package datatype
