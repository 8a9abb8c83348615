package local

import (
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

func TestProbeReportsTheFirstMessage(t *testing.T) {
	for _, n := range []int{0, 10, copyMax + 1} {
		ranks(t, 2, func(t testing.TB, c *Comm) {
			if c.rank == 1 {
				r := c.isend(message(n, 1, 0), 0, 4, backend.Standard)
				c.sync(t)
				_, err := c.wait(t, r)
				must(t, err)
				c.sync(t)
				return
			}
			want := backend.Status{Source: 1, Tag: 4, Bytes: n}
			for _, tag := range []int{4, backend.AnyTag} {
				st, ok, err := c.Probe(nil, backend.AnySource, tag, true)
				if err != nil || !ok || st != want {
					t.Errorf("probe: %+v, %v, %v", st, ok, err)
				}
			}
			if _, ok, err := c.Probe(nil, 1, 5, false); ok || err != nil {
				t.Errorf("probe of another tag: %v, %v", ok, err)
			}
			c.sync(t)
			if st, err := c.Recv(nil, make([]byte, n), 1, 4); err != nil || st != want {
				t.Errorf("receive: %+v, %v", st, err)
			}
			if _, ok, err := c.Probe(nil, 1, backend.AnyTag, false); ok || err != nil {
				t.Errorf("probe after the receive: %v, %v", ok, err)
			}
			c.sync(t) // rank 1 must not have left before
		})
	}
}

// A message taken by Mprobe is not seen by others, is received once, and its
// sender cannot take it back.
func TestMprobeTakesTheMessage(t *testing.T) {
	for _, n := range []int{10, copyMax + 1} {
		ranks(t, 2, func(t testing.TB, c *Comm) {
			if c.rank == 1 {
				first := c.isend(message(n, 1, 1), 0, 0, backend.Standard)
				second := c.isend(message(n, 1, 2), 0, 0, backend.Standard)
				c.sync(t)
				c.sync(t)
				if c.Cancel(first) {
					t.Error("a message that was matched has been canceled")
				}
				c.sync(t)
				for _, r := range []*backend.Request{first, second} {
					_, err := c.wait(t, r)
					must(t, err)
				}
				c.sync(t)
				return
			}
			c.sync(t)
			m, st, ok, err := c.Mprobe(nil, backend.AnySource, 0, true)
			if err != nil || !ok || st.Bytes != n {
				t.Fatalf("mprobe: %+v, %v, %v", st, ok, err)
			}
			c.sync(t)
			c.sync(t)
			buf := make([]byte, n)
			if _, err := c.Recv(nil, buf, 1, 0); err != nil || buf[0] != message(1, 1, 2)[0] {
				t.Errorf("the receive got message starting %d, %v", buf[0], err)
			}
			r := start(func(r *backend.Request) { c.Imrecv(r, m, buf) })
			if st, err := c.wait(t, r); err != nil || st.Bytes != n || buf[0] != message(1, 1, 1)[0] {
				t.Errorf("imrecv: %+v, %v, message starting %d", st, err, buf[0])
			}
			r = start(func(r *backend.Request) { c.Imrecv(r, m, buf) })
			if _, err := c.wait(t, r); !errors.Is(err, backend.ErrRequest) {
				t.Errorf("the second imrecv: %v", err)
			}
			if _, _, ok, err := c.Mprobe(nil, 1, 0, false); ok || err != nil {
				t.Errorf("mprobe without a message: %v, %v", ok, err)
			}
			c.sync(t)
		})
	}
}

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

// A send ends at its deadline although the receiver has taken the message with Mprobe and never receives it.
func TestDeadlineEndsSendOfMatchedMessage(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		if c.rank == 1 {
			err := c.Send(&backend.Bound{Timeout: 20 * time.Millisecond}, []byte{1}, 0, 0, backend.Synchronous)
			if !errors.Is(err, backend.ErrTimeout) {
				t.Fatalf("send: %v", err)
			}
			must(t, c.Send(nil, nil, 0, 1, backend.Standard))
			return
		}
		m, _, _, err := c.Mprobe(nil, 1, 0, true)
		must(t, err)
		_, err = c.Recv(nil, nil, 1, 1)
		must(t, err)
		r := start(func(r *backend.Request) { c.Imrecv(r, m, make([]byte, 1)) })
		if _, err := c.wait(t, r); !errors.Is(err, backend.ErrRequest) {
			t.Errorf("receive of what the sender has given up: %v", err)
		}
	})
}
