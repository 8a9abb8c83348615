//go:build linux || darwin

package tcp

import (
	"bytes"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

var lengths = []int{0, 1, 8, 63, joinMax, joinMax + 1, 20000, engine.EagerMax - 1, engine.EagerMax, engine.EagerMax + 1, frame.MaxPayload, frame.MaxPayload + 1, 3*frame.MaxPayload + 17}

func init() {
	// Every rank sends to every other, and to itself, all lengths in both modes, received in order
	// and into room that is exact, larger, and too small.
	programs["all"] = func(c backend.Comm) error {
		b := &backend.Bound{Timeout: time.Minute}
		for k, n := range lengths {
			for _, mode := range []backend.Mode{backend.Standard, backend.Synchronous} {
				var sends []*backend.Request
				out := ranktest.Fill(make([]byte, n), c.Rank()+k)
				for dest := range c.Size() {
					r := &backend.Request{}
					r.Begin()
					c.Isend(r, out, dest, k, mode)
					sends = append(sends, r)
				}
				for i := range c.Size() {
					source := (c.Rank() + i) % c.Size()
					room := n
					switch i % 3 {
					case 1:
						room = n + 9
					case 2:
						room = n / 2
					}
					in := bytes.Repeat([]byte{0xa5}, room+16)
					st, err := c.Recv(b, in[:room:room], source, k)
					if want := room < n; (backend.Code(err) == backend.Code(backend.ErrTruncate)) != want || err != nil && !want {
						return fmt.Errorf("%d bytes into %d: %v", n, room, err)
					}
					if st != (backend.Status{Source: source, Tag: k, Bytes: n}) {
						return fmt.Errorf("%d bytes into %d: status %+v", n, room, st)
					}
					got := min(n, room)
					if !bytes.Equal(in[:got], ranktest.Fill(make([]byte, n), source+k)[:got]) {
						return fmt.Errorf("%d bytes from %d, mode %v: wrong bytes", n, source, mode)
					}
					for _, x := range in[got:] {
						if x != 0xa5 {
							return fmt.Errorf("%d bytes from %d wrote behind the %d there is room for", n, source, room)
						}
					}
				}
				for _, r := range sends {
					must.OK(c.Await(b, r))
					if r.Err != nil {
						return r.Err
					}
				}
			}
		}
		return nil
	}
}
