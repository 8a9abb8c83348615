//go:build interleave

package word

import (
	"testing"

	"github.com/cohort-hpc/cohort/internal/interleave"
)

// Every kind of word, lock and sleep hands a payload over without a race, and a Release without an exchange does not
// let both of two parties miss each other only if one follows it.
func TestInterleaveHandsOver(t *testing.T) {
	for name, make := range map[string]func() (give func(), take func()){
		"Uint32": func() (func(), func()) {
			var w Uint32
			return func() { w.Store(1) }, func() { poll(func() bool { return w.Load() == 1 }) }
		},
		"Uint64": func() (func(), func()) {
			var w Uint64
			return func() { w.CompareAndSwap(0, 1) }, func() { poll(func() bool { return w.Load() == 1 }) }
		},
		"Bool": func() (func(), func()) {
			var w Bool
			return func() { w.Swap(true) }, func() { poll(func() bool { return w.CompareAndSwap(true, false) }) }
		},
		"Pointer": func() (func(), func()) {
			var w Pointer[int]
			return func() { w.Store(new(int)) }, func() { poll(func() bool { return w.Load() != nil }) }
		},
		"release": func() (func(), func()) {
			var w uint32
			return func() { ReleaseUint32(&w, 1) }, func() { poll(func() bool { return LoadUint32(&w) == 1 }) }
		},
		"Parker": func() (func(), func()) {
			p := NewParker()
			return p.Unpark, func() { p.Park(0) }
		},
		"Mutex": func() (func(), func()) {
			var m Mutex
			given := false
			return func() { m.Lock(); given = true; m.Unlock() }, func() {
				poll(func() bool { m.Lock(); defer m.Unlock(); return given })
			}
		},
		"futex": func() (func(), func()) {
			var w Uint32
			return func() { w.Store(1); FutexWake(&w, 1) }, func() {
				for w.Load() == 0 {
					FutexWait(&w, 0, 0)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 5}, func(x *interleave.Run) {
				give, take := make()
				data, got := []byte{0}, []byte{0}
				x.Go("giver", func() { Copy(data, []byte{7}); give() })
				x.Go("taker", func() {
					if take(); Copy(got, data) != 1 || got[0] != 7 {
						x.Errorf("took %d", got[0])
					}
				})
			})
		})
	}
}

func poll(done func() bool) {
	for !done() {
		Yield()
	}
}
