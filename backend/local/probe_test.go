package local

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// Many probing threads share the messages out among them.
func TestConcurrentMprobesGetEachMessageOnce(t *testing.T) {
	const threads, count = 4, 100
	ranks(t, 2, func(t testing.TB, c *Comm) {
		if c.rank == 1 {
			for i := range threads * count {
				must(t, c.Send(nil, []byte{byte(i), byte(i >> 8)}, 0, 0, backend.Standard))
			}
			return
		}
		got := make(chan int, threads*count)
		done := make(chan struct{})
		for range threads {
			go func() {
				defer func() { done <- struct{}{} }()
				for range count {
					m, _, _, err := c.Mprobe(nil, backend.AnySource, backend.AnyTag, true)
					must(t, err)
					var b [2]byte
					_, err = c.wait(t, start(func(r *backend.Request) { c.Imrecv(r, m, b[:]) }))
					must(t, err)
					got <- int(b[0]) | int(b[1])<<8
				}
			}()
		}
		for range threads {
			<-done
		}
		seen := make(map[int]bool)
		for range threads * count {
			seen[<-got] = true
		}
		if len(seen) != threads*count {
			t.Errorf("%d different messages, want %d", len(seen), threads*count)
		}
	})
}
