//go:build cgo && linux

package jobtest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// handleLibrary is a C library that uses a communicator, and makes one with the ranks in reverse order.
const handleLibrary = `
#include <mpi.h>
#include <stdint.h>
int library_sum(uintptr_t h, int x) {
	int sum = -1;
	if (MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, (MPI_Comm)h)) return -1;
	return sum;
}
uintptr_t library_reverse(uintptr_t h) {
	int rank;
	MPI_Comm c = MPI_COMM_NULL;
	MPI_Comm_rank((MPI_Comm)h, &rank);
	MPI_Comm_split((MPI_Comm)h, 0, -rank, &c);
	return (uintptr_t)c;
}

int library_ranks(uintptr_t h) {
	MPI_Win win = (MPI_Win)h;
	MPI_Group g;
	int n;
	if (MPI_Win_get_group(win, &g) || MPI_Group_size(g, &n)) return -1;
	MPI_Group_free(&g);
	return n;
}
`

// TestHandlesPassCommunicatorsToC checks that a C library can use a communicator and a window of cohort, and cohort one of a
// C library.
func TestHandlesPassCommunicatorsToC(t *testing.T) {
	rank("handle", func(w *cohort.Comm) error {
		var sum func(h uintptr, x int32) int32
		var reverse func(h uintptr) uintptr
		lib := must.Get(purego.Dlopen(os.Getenv("HANDLE_LIBRARY"), purego.RTLD_NOW))
		purego.RegisterLibFunc(&sum, lib, "library_sum")
		purego.RegisterLibFunc(&reverse, lib, "library_reverse")
		var ranks func(h uintptr) int32
		purego.RegisterLibFunc(&ranks, lib, "library_ranks")

		n, r := w.Size(), w.Rank()
		odd := must.Get(w.Split(r%2, 0))
		for _, c := range []*cohort.Comm{w, odd} {
			h := must.Get(c.MPIHandle())
			want := 0
			for i := r % 2; i < n; i += 2 {
				want += i
			}
			if c == w {
				want = n * (n - 1) / 2
			}
			if got := int(sum(h, int32(r))); got != want {
				return fmt.Errorf("C added up %d on %s, want %d", got, c.Name(), want)
			}
		}
		h, _ := w.MPIHandle()
		back := must.Get(cohort.FromMPIHandle(reverse(h)))
		if back.Size() != n || back.Rank() != n-1-r {
			return fmt.Errorf("the reversed communicator is %d of %d on rank %d of %d", back.Rank(), back.Size(), r, n)
		}
		win, err := cohort.NewWindow[int](w, 1)
		if err != nil {
			return err
		}
		h, err = win.MPIHandle()
		if err != nil || int(ranks(h)) != n {
			return fmt.Errorf("C finds %d ranks in a window of %d: %v", ranks(h), n, err)
		}
		must.OK(win.Close())
		first, err := cohort.BcastOne(back, r, 0)
		if err != nil || first != n-1 {
			return fmt.Errorf("rank 0 of the reversed communicator was rank %d, %v; want %d", first, err, n-1)
		}
		must.OK(odd.Close())
		if _, err := odd.MPIHandle(); !errors.Is(err, cohort.ErrClosed) {
			return fmt.Errorf("the handle of a closed communicator: %v, want %v", err, cohort.ErrClosed)
		}
		if _, err := cohort.FromMPIHandle(0); !errors.Is(err, cohort.ErrComm) {
			return fmt.Errorf("the handle 0: %v, want %v", err, cohort.ErrComm)
		}
		return back.Close()
	})
	inLibraries(t, func(t *testing.T, name string) {
		lib := compiledC(t, mpicc(t, name), handleLibrary, "handle.so", "-shared", "-fPIC", "-Wno-int-to-pointer-cast", "-Wno-pointer-to-int-cast")
		start(t, name, 3, "handle", "HANDLE_LIBRARY="+lib).must(t)
	})
}
