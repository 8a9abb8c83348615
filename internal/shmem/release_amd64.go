//go:build amd64 && !race

package shmem

// ReleaseUint32 stores v in a word that others read atomically, after everything that was stored before. On amd64
// the stores of one processor are seen in their order, so that a plain one does. An atomic one is an exchange,
// which waits for all of them.
func ReleaseUint32(p *uint32, v uint32) { *p = v }

// ReleaseUint64 is ReleaseUint32 of a longer word.
func ReleaseUint64(p *uint64, v uint64) { *p = v }
