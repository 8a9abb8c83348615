// Package word has the words and payloads that goroutines or processes share.
//
// In normal builds its types are those of sync/atomic and sync under another name, and its functions compile to
// the same instructions. Under the build tag interleave every access is reported to package interleave, which
// decides at each of them which goroutine goes on, and so runs every interleaving of a protocol.
//
// A protocol that the explorer runs uses these types for all that its parties share, and neither channels nor
// package sync.
package word
