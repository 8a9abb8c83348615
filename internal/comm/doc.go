// Package comm implements the communicators, requests, windows and persistent operations of package
// cohort, without element types: their life cycle, how communicators are derived, the running and
// recording of operations, windows in shared memory and across nodes, and recovery from lost ranks.
package comm
