// Package window implements windows in shared memory without element types: the layout of
// the ranks' parts, and the locks of the parts.
package window
