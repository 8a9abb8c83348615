//go:build !amd64 || race

package flight

import "sync/atomic"

// store writes a word of a record, after those written before it.
func store(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
