//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// fill writes bytes that depend on all of its arguments.
func fill(b []byte, from, to, i int) {
	for k := range b {
		b[k] = byte(k*7 + k>>8 + from*31 + to*57 + i*13)
	}
}

const canary = 32

// guarded returns a buffer of n bytes between two canaries, and a check of them.
func guarded(n int) ([]byte, func() error) {
	all := bytes.Repeat([]byte{0xa5}, n+2*canary)
	return all[canary : canary+n : canary+n], func() error {
		want := bytes.Repeat([]byte{0xa5}, canary)
		if !bytes.Equal(all[:canary], want) || !bytes.Equal(all[canary+n:], want) {
			return errors.New("bytes outside the buffer were written")
		}
		return nil
	}
}

var lengths = []int{0, 1, 8, 28, 29, 44, 45, 64, 1000, 4096, 16384, 16385, 65536, 200000, 1 << 20, 4<<20 + 13}

func init() {
	programs["pingpong"] = func(c backend.Comm) error {
		for _, n := range lengths {
			for i := range 12 {
				send := make([]byte, n)
				recv, check := guarded(n)
				if c.Rank() == 0 {
					fill(send, 0, 1, i)
					if err := c.Send(nil, send, 1, i, backend.Standard); err != nil {
						return err
					}
				}
				st, err := c.Recv(nil, recv, 1-c.Rank(), i)
				if err != nil || st != (backend.Status{Source: 1 - c.Rank(), Tag: i, Bytes: n}) {
					return fmt.Errorf("%d bytes: %+v %v", n, st, err)
				}
				fill(send, 0, 1, i)
				if !bytes.Equal(send, recv) || check() != nil {
					return fmt.Errorf("%d bytes: wrong data %v", n, check())
				}
				if c.Rank() == 1 {
					if err := c.Send(nil, recv, 0, i, backend.Synchronous); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}

	// Every rank sends every other a known number of messages of known lengths,
	// and receives them with wildcards, posted before or after they arrive.
	programs["storm"] = func(c backend.Comm) error {
		const each = 60
		n, me := c.Size(), c.Rank()
		length := func(from, to, i int) int {
			r := rand.New(rand.NewPCG(uint64(from*1000+to), uint64(i)))
			return []int{r.IntN(45), r.IntN(3000), r.IntN(20000), r.IntN(300000)}[r.IntN(4)]
		}
		var sends []*backend.Request
		for i := range each {
			for to := range n {
				b := make([]byte, length(me, to, i))
				fill(b, me, to, i)
				r := &backend.Request{}
				r.Begin()
				c.Isend(r, b, to, i, backend.Mode(i%2))
				sends = append(sends, r)
			}
		}
		next := make([]map[int]bool, n)
		for k := range next {
			next[k] = map[int]bool{}
		}
		for k := range n * each {
			buf, check := guarded(300000)
			var st backend.Status
			var err error
			if k%3 == 0 {
				var m backend.Matched
				m, st, _, err = c.Mprobe(nil, backend.AnySource, backend.AnyTag, true)
				if err != nil {
					return err
				}
				r := &backend.Request{}
				r.Begin()
				c.Imrecv(r, m, buf[:st.Bytes:st.Bytes])
				if err := c.Await(nil, r); err != nil {
					return err
				}
				if r.Err != nil || r.Status != st {
					return fmt.Errorf("imrecv: %+v, probed %+v: %v", r.Status, st, r.Err)
				}
			} else if st, err = c.Recv(nil, buf, backend.AnySource, backend.AnyTag); err != nil {
				return err
			}
			from, i := st.Source, st.Tag
			if next[from][i] {
				return fmt.Errorf("message %d of rank %d came twice", i, from)
			}
			next[from][i] = true
			want := make([]byte, length(from, me, i))
			fill(want, from, me, i)
			if st.Bytes != len(want) || !bytes.Equal(buf[:st.Bytes], want) || check() != nil {
				return fmt.Errorf("message %d of rank %d is wrong (%d bytes, want %d)", i, from, st.Bytes, len(want))
			}
		}
		for _, r := range sends {
			if err := c.Await(nil, r); err != nil || r.Err != nil {
				return errors.Join(err, r.Err)
			}
		}
		return nil
	}

	// Messages longer than the buffer: ErrTruncate, what fits, nothing outside.
	programs["truncate"] = func(c backend.Comm) error {
		r := rand.New(rand.NewPCG(1, 2)) // the same on both ranks
		for i := range 400 {
			size := r.IntN(1 << (2 + r.IntN(18)))
			room := r.IntN(size + 1)
			if c.Rank() == 0 {
				b := make([]byte, size)
				fill(b, 0, 1, i)
				if err := c.Send(nil, b, 1, 3, backend.Mode(i%2)); err != nil {
					return err
				}
				continue
			}
			buf, check := guarded(room)
			st, err := c.Recv(nil, buf, 0, 3)
			want := make([]byte, size)
			fill(want, 0, 1, i)
			if st.Bytes != size || room < size != errors.Is(err, backend.ErrTruncate) || check() != nil || !bytes.Equal(buf, want[:room]) {
				return fmt.Errorf("%d bytes into %d: %+v %v %v", size, room, st, err, check())
			}
		}
		return nil
	}

	// Between two ranks, messages of one tag keep their order, whatever their
	// lengths, and long ones do not stop others.
	programs["order"] = func(c backend.Comm) error {
		if c.Rank() == 0 {
			var qs []*backend.Request
			for i := range 500 {
				b := make([]byte, 8+(i%7)*9000)
				b[0], b[1] = byte(i), byte(i>>8)
				q := &backend.Request{}
				q.Begin()
				c.Isend(q, b, 1, 1, backend.Standard)
				qs = append(qs, q)
			}
			for _, q := range qs {
				if err := c.Await(nil, q); err != nil || q.Err != nil {
					return errors.Join(err, q.Err)
				}
			}
			return nil
		}
		for i := range 500 {
			b := make([]byte, 1<<16)
			st, err := c.Recv(nil, b, 0, 1)
			if err != nil || st.Bytes != 8+(i%7)*9000 || int(b[0])|int(b[1])<<8 != i {
				return fmt.Errorf("message %d: %+v %v, is %d", i, st, err, int(b[0])|int(b[1])<<8)
			}
		}
		return nil
	}
}

func TestRandomMessagesAllArrive(t *testing.T) {
	sizes := []int{1, 2, 3, 8}
	if testing.Short() {
		sizes = []int{1, 3}
	}
	for _, n := range sizes {
		launch(t, "storm", n)
	}
}

// TestMessagesWithoutSingleCopy checks that long messages go through the rings where processes cannot copy
// from each other.
func TestMessagesWithoutSingleCopy(t *testing.T) {
	t.Setenv("SHM_TEST_NOCOPY", "1")
	for _, p := range []string{"pingpong", "truncate", "order"} {
		launch(t, p, 2)
	}
	if !testing.Short() {
		launch(t, "storm", 5)
	}
}
