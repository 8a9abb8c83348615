// Package window is what windows in shared memory are made of, without types: how
// a memory is divided among the ranks, and the locks of its parts.
package window
