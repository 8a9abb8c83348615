// Package budget says how much memory this process may still take on its node, before the kernel or the
// scheduler ends it.
package budget
