//go:build !amd64 || race

package shmem

import "sync/atomic"

// Release stores v in a word that others read atomically, after everything that was stored before.
func Release(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
