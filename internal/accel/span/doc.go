// Package span maps ranges of addresses to values, such as the allocations of a driver, and finds
// the range of an address.
package span
