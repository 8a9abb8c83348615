//go:build cgo && linux

package jobtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// quietTool makes a library behave like MPICH 5: a receive from any source that is too short for a
// message that has arrived returns no error, and the status has the message's length.
const quietTool = `
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
struct quiet { void *whole; MPI_Status st; };
static int take(void *b, int n, int source, int tag, MPI_Comm c, int block, MPI_Status *st) {
	MPI_Message m;
	int flag = 1, got;
	if (source != MPI_ANY_SOURCE) return 0;
	if (block) PMPI_Mprobe(source, tag, c, &m, st);
	else PMPI_Improbe(source, tag, c, &flag, &m, st);
	if (!flag) return 0;
	PMPI_Get_count(st, MPI_BYTE, &got);
	void *whole = malloc(got + 1);
	PMPI_Mrecv(whole, got, MPI_BYTE, &m, st);
	memcpy(b, whole, got < n ? got : n);
	free(whole);
	return 1;
}
int MPI_Recv(void *b, int n, MPI_Datatype t, int source, int tag, MPI_Comm c, MPI_Status *st) {
	return take(b, n, source, tag, c, 1, st) ? MPI_SUCCESS : PMPI_Recv(b, n, t, source, tag, c, st);
}
static int query(void *state, MPI_Status *st) { *st = *(MPI_Status *)state; return MPI_SUCCESS; }
static int release(void *state) { free(state); return MPI_SUCCESS; }
static int cancel(void *state, int complete) { return MPI_SUCCESS; }
int MPI_Irecv(void *b, int n, MPI_Datatype t, int source, int tag, MPI_Comm c, MPI_Request *q) {
	MPI_Status *st = malloc(sizeof *st);
	if (!take(b, n, source, tag, c, 0, st)) return PMPI_Irecv(b, n, t, source, tag, c, q);
	int rc = PMPI_Grequest_start(query, release, cancel, st, q);
	return rc ? rc : PMPI_Grequest_complete(*q);
}
`

// TestShortReceiveFromAnySourceIsTruncated checks that a receive which is too short for a message
// that has arrived is ErrTruncate with the message's length, whether or not the library reports it.
func TestShortReceiveFromAnySourceIsTruncated(t *testing.T) {
	rank("short", func(w *cohort.Comm) error {
		const size = 64
		for tag := range 2 {
			if w.Rank() == 1 {
				must.OK(cohort.Send(w, make([]byte, size), 0, tag))
			}
			must.OK(w.Barrier())
			if w.Rank() == 1 {
				continue
			}
			must.Get(w.Probe(1, tag)) // it has arrived
			var st cohort.Status
			var err error
			buf := make([]byte, 8)
			if tag == 0 {
				st, err = cohort.Recv(w, buf, cohort.AnySource, tag)
			} else if q, e := cohort.Irecv(w, buf, cohort.AnySource, tag); e == nil {
				st, err = q.Wait()
			}
			if !errors.Is(err, cohort.ErrTruncate) || st.Source != 1 || st.Tag != tag {
				return fmt.Errorf("receive %d: %+v, %w; want ErrTruncate from rank 1", tag, st, err)
			}
			say("truncated %d", st.Bytes())
		}
		return traffic(w, 3)
	})
	inLibraries(t, func(t *testing.T, name string) { start(t, name, 2, "short").must(t) })
	t.Run("no error of the library", func(t *testing.T) {
		tool := compiledTool(t, "mpich", quietTool)
		if got := start(t, "mpich", 2, "short", "LD_PRELOAD="+tool).must(t).lines("truncated"); !slices.Equal(got, []string{"64", "64"}) {
			t.Errorf("the lengths are %q", got)
		}
	})
}
