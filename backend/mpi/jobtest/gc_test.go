//go:build cgo && linux

package jobtest

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestBuffersStayPinned checks that buffers which the program no longer refers to stay the
// library's until the operation is complete. Constant garbage collection neither frees nor reuses
// them.
func TestBuffersStayPinned(t *testing.T) {
	skipShort(t, "buffers stay where they are under garbage collection")
	rank("buffers", buffersStay)
	inLibraries(t, func(t *testing.T, library string) { start(t, library, 2, "buffers", "GOGC=1").must(t) })
}

func buffersStay(w *cohort.Comm) error {
	peer := 1 - w.Rank()
	content := func(rank, i, n int) []byte { return bytes.Repeat([]byte{byte(1 + rank + 2*i)}, n) }
	for i := range 40 {
		n := []int{100, 5000, 70_000, 1 << 20}[i%4]
		// The program keeps no reference to the buffers that it sends. It receives into parts of a
		// larger buffer, which is checked at the end.
		in := make([]byte, 3*n)
		var reqs []*cohort.Request
		keep := func(q *cohort.Request, err error) error {
			reqs = append(reqs, q)
			return err
		}
		must.OK(keep(cohort.Irecv(w, in[n:2*n], peer, 1)))
		for _, send := range []func(*cohort.Comm, []byte, int, int) (*cohort.Request, error){cohort.Isend[byte], cohort.Issend[byte]} {
			must.OK(keep(send(w, content(w.Rank(), i, n), peer, 1)))
		}
		must.OK(keep(cohort.Ibcast(w, content(0, i, n), 0)))
		p, err := cohort.SendInit(w, content(w.Rank(), i, n), peer, 2)
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			return err
		}
		garbage := make(chan int)
		go func() {
			defer close(garbage)
			for range 3 {
				for _, size := range []int{n, n, 2 * n} {
					_ = bytes.Repeat([]byte{0xa5}, size)
				}
				runtime.GC()
				debug.FreeOSMemory()
			}
		}()
		<-garbage
		second, third := make([]byte, n), make([]byte, n)
		must.Get(cohort.Recv(w, second, peer, 1))
		must.Get(cohort.Recv(w, third, peer, 2))
		must.OK(cohort.WaitAll(reqs...))
		must.Get(p.Wait())
		must.OK(p.Close())
		want := content(peer, i, n)
		for j, got := range [][]byte{in[n : 2*n], second, third} {
			if !bytes.Equal(got, want) {
				return fmt.Errorf("round %d: message %d of %d bytes is wrong from byte %d on", i, j, n, firstDifference(got, want))
			}
		}
		if !bytes.Equal(in[:n], make([]byte, n)) || !bytes.Equal(in[2*n:], make([]byte, n)) {
			return fmt.Errorf("round %d: written outside a buffer of %d bytes", i, n)
		}
	}
	return nil
}
