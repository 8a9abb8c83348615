// Package gate is the one way to be inside of something that can be closed, given back or unmapped: a
// communicator, a window, a mapping, a link, a library.
package gate
