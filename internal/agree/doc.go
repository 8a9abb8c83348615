// Package agree lets ranks that may fail agree on a record. The agreement is uniform:
// what a rank returned just before it failed is what all others return.
//
// An [Agreement] has no links, clocks or goroutines. Its caller sends its messages, and
// passes in what arrives and which members are lost. The links keep the order of messages
// between two members. The last messages that a member sent before it failed may be
// missing, a different number on each link. A member that is reported lost stays lost, and
// the others learn of it eventually.
//
// [Recovery] is the caller: over the control communicators of a backend it carries out
// Agree and Shrink of backend.Recovery.
//
// docs/adr/0015-recovery.md argues why this is enough, and what it costs.
package agree
