//go:build amd64 && !race

package shmem

// Release stores v in a word that others read atomically, after everything that was stored before. On amd64
// the stores of one processor are seen in their order, so that a plain one does. An atomic one is an exchange,
// which waits for all of them.
func Release(p *uint32, v uint32) { *p = v }
