// Command assembly is compiled by a test that reads the instructions of its functions.
package main

import (
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/internal/word"
)

type cell struct {
	seq  uint32
	ctx  uint32
	size uint64
	tag  int64
}

//go:noinline
func publish(c *cell, ctx uint32, size uint64, tag int64, seq uint32, asleep *word.Uint32) bool {
	c.ctx, c.size, c.tag = ctx, size, tag
	word.ReleaseUint32(&c.seq, seq)
	return asleep.Load() != 0
}

//go:noinline
func words(a *word.Uint32, b *word.Uint64, p *uint64, m *word.Mutex, data, src []byte) int {
	m.Lock()
	a.Store(a.Load() + 1)
	if b.CompareAndSwap(1, 2) {
		b.Add(3)
	}
	word.StoreUint64(p, word.LoadUint64(p))
	word.Writes(data)
	word.Reading(p)
	n := word.Copy(data, src)
	m.Unlock()
	return n
}

//go:noinline
func atomics(a *atomic.Uint32, b *atomic.Uint64, p *uint64, m *sync.Mutex, data, src []byte) int {
	m.Lock()
	a.Store(a.Load() + 1)
	if b.CompareAndSwap(1, 2) {
		b.Add(3)
	}
	atomic.StoreUint64(p, atomic.LoadUint64(p))
	n := copy(data, src)
	m.Unlock()
	return n
}

func main() {
	var a atomic.Uint32
	var b atomic.Uint64
	var m sync.Mutex
	var c cell
	println(publish(&c, 1, 2, 3, 4, &a), words(&a, &b, &c.size, &m, nil, nil), atomics(&a, &b, &c.size, &m, nil, nil))
}
