// Package span keeps ranges of addresses, each with a value, and finds the one that an address is in:
// what a driver has allocated, or pinned.
package span
