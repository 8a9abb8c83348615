// Package word has the words and payloads that goroutines or processes share.
//
// In normal builds its types are those of sync/atomic and sync under another name, and its functions compile to
// the same instructions. Under the build tag interleave they report every access to package interleave, the explorer.
// It decides at each access which goroutine goes on, and so runs every interleaving of a protocol within a bound.
//
// A protocol that the explorer runs uses these types for everything that its parties share, and neither channels nor
// package sync.
package word
