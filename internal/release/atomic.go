//go:build !amd64 || race

package release

import "sync/atomic"

// Uint32 stores v in a word that others read atomically. Everything that the caller has stored before is visible to a
// reader that sees v.
func Uint32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Uint64 is Uint32 of a longer word.
func Uint64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
