// Package release has stores that publish what was stored before them, and cost no more than a plain store where the
// processor allows it.
package release
