// Package ranktest has what tests do with the communicators of a job, whose ranks are processes or goroutines
// of one.
package ranktest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// Int is a type of 8 bytes.
var Int = &backend.Datatype{Kind: backend.Int64, Size: 8, Name: "int64", ID: uint32(backend.Int64)}

// Sum adds Ints.
var Sum = &backend.Op{Code: backend.OpSum, Commutative: true, Type: Int, Apply: func(dst, a, b []byte) {
	for i := 0; i < len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(a[i:])+binary.LittleEndian.Uint64(b[i:]))
	}
}}

// Each runs f for every rank at once.
func Each[C backend.Comm](t *testing.T, ranks []C, f func(c C) error) {
	t.Helper()
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, c := range ranks {
		all.Go(func() { errs[i] = f(c) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", ranks[i].Rank(), err)
		}
	}
}

// Fill fills b with bytes that depend on seed, and returns it.
func Fill(b []byte, seed int) []byte {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed*31)
	}
	return b
}

// Around sends messages of a length from each rank to the next, which must get them in order.
func Around(c backend.Comm, messages, length int) error {
	bound := &backend.Bound{Timeout: time.Minute}
	n, me := c.Size(), c.Rank()
	out, in := make([]byte, length), make([]byte, length)
	for i := range messages {
		q := &backend.Request{}
		q.Begin()
		c.Irecv(q, in, (me+n-1)%n, 5)
		Fill(out, me*50+i)
		if err := c.Send(bound, out, (me+1)%n, 5, backend.Standard); err != nil {
			return err
		}
		if err := c.Await(bound, q); err != nil {
			return err
		}
		if q.Err != nil {
			return q.Err
		}
		if !bytes.Equal(in, Fill(make([]byte, length), (me+n-1)%n*50+i)) {
			return fmt.Errorf("message %d of rank %d is not what was sent", i, (me+n-1)%n)
		}
	}
	return nil
}
