// Package agree has ranks that can be lost agree on a record: uniformly, so that also what a rank
// returned just before its end is what the others return.
//
// It has no links, no clocks and no goroutines. Its caller sends what an [Agreement] wants sent and
// tells it what came and who is lost. The links keep the order of what one member sends to another;
// of what a member sent before its end any last part may be missing, on each link another. A member
// that is said to be lost is, and for good, and the others learn of it in the end.
//
// docs/adr/0015-recovery.md has the argument why this is enough, and what it costs.
package agree
