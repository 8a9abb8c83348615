//go:build !amd64 || race

package shmem

import "sync/atomic"

// ReleaseUint32 stores v in a word that others read atomically, after everything that was stored before.
func ReleaseUint32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// ReleaseUint64 is ReleaseUint32 of a longer word.
func ReleaseUint64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
