// Package window implements windows in shared memory without element types: their
// memory, the layout of the ranks' parts, the locks of the parts, and atomic updates of elements.
package window
