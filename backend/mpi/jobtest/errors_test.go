//go:build cgo && linux

package jobtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// damage is a tool that corrupts the arguments of calls marked by a tag or a count of 77, so that
// the library's own checks reject them. cohort's checks would come first otherwise.
const damage = `
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#define MARK 77
static int is(const char *what) { const char *s = getenv("DAMAGE"); return s && !strcmp(s, what); }
int MPI_Send(const void *b, int n, MPI_Datatype t, int dest, int tag, MPI_Comm c) {
	if (tag != MARK) return PMPI_Send(b, n, t, dest, tag, c);
	int two[2] = {1, 2}, one, me;
	void *memory;
	MPI_Request none = MPI_REQUEST_NULL;
	if (is("COMM")) return PMPI_Send(b, n, t, dest, tag, MPI_COMM_NULL);
	if (is("BUFFER") && sizeof(MPI_Comm) == 4) return PMPI_Send(NULL, n, t, dest, tag, c);
	if (is("BUFFER")) return PMPI_Allreduce(two, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
	if (is("COUNT")) return PMPI_Send(b, -1, t, dest, tag, c);
	if (is("TYPE")) return PMPI_Send(b, n, MPI_DATATYPE_NULL, dest, tag, c);
	if (is("TAG")) return PMPI_Send(b, n, t, dest, -MARK, c);
	if (is("RANK")) return PMPI_Send(b, n, t, 9999, tag, c);
	if (is("ROOT")) return PMPI_Bcast(two, 1, MPI_INT, 9999, c);
	if (is("OP")) return PMPI_Allreduce(two, &one, 1, MPI_INT, MPI_OP_NULL, c);
	if (is("TRUNCATE")) {
		PMPI_Comm_rank(c, &me);
		PMPI_Isend(two, 2, MPI_INT, me, tag, c, &none);
		int rc = PMPI_Recv(&one, 1, MPI_INT, me, tag, c, MPI_STATUS_IGNORE);
		PMPI_Wait(&none, MPI_STATUS_IGNORE);
		return rc;
	}
	if (is("REQUEST")) return PMPI_Start(&none);
	// MPICH 4.0.2 allocates that. We know no call for which it returns other errors.
	if (is("NO_MEM")) return sizeof(MPI_Comm) == 4 ? MPI_ERR_NO_MEM : PMPI_Alloc_mem((MPI_Aint)1 << 62, MPI_INFO_NULL, &memory);
	if (is("OTHER")) return MPI_ERR_OTHER;
	return PMPI_Send(b, n, t, dest, tag, c);
}
int MPI_Recv(void *b, int n, MPI_Datatype t, int source, int tag, MPI_Comm c, MPI_Status *st) {
	return PMPI_Recv(b, n, t, tag == MARK ? 9999 : source, tag, c, st);
}
int MPI_Isend(const void *b, int n, MPI_Datatype t, int dest, int tag, MPI_Comm c, MPI_Request *q) {
	return PMPI_Isend(b, n, t, tag == MARK ? 9999 : dest, tag, c, q);
}
int MPI_Iprobe(int source, int tag, MPI_Comm c, int *flag, MPI_Status *st) {
	return PMPI_Iprobe(tag == MARK ? 9999 : source, tag, c, flag, st);
}
int MPI_Allreduce(const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
	return PMPI_Allreduce(s, r, n, t, n == MARK ? MPI_OP_NULL : op, c);
}
int MPI_Ibarrier(MPI_Comm c, MPI_Request *q) { // the library makes it everywhere
	(void)c;
	return PMPI_Ibarrier(MPI_COMM_NULL, q);
}
`

const mark = 77

// isFrom returns an error unless err is the library's error for an operation.
func isFrom(op string, err, sentinel error) error {
	var o *cohort.OpError
	if !errors.As(err, &o) || o.Op != op {
		return fmt.Errorf("%s: got %v, want an OpError of it", op, err)
	}
	var m *cohort.MPIError
	if !errors.As(err, &m) || m.Class <= 0 || m.Code == 0 || m.Text == "" || !strings.Contains(err.Error(), m.Text) {
		return fmt.Errorf("%s: got %v, want an MPIError with class, code and text", op, err)
	}
	if !errors.Is(err, sentinel) {
		return fmt.Errorf("%s: got %v, want %v", op, err, sentinel)
	}
	return nil
}

// sentinels are the sentinels of the classes of MPI's errors, as documented.
var sentinels = map[string]error{
	"COMM": cohort.ErrComm, "BUFFER": cohort.ErrBuffer, "COUNT": cohort.ErrCount, "TYPE": cohort.ErrType, "TAG": cohort.ErrTag,
	"RANK": cohort.ErrRank, "ROOT": cohort.ErrRoot, "OP": cohort.ErrOp, "TRUNCATE": cohort.ErrTruncate,
	"REQUEST": cohort.ErrRequest, "NO_MEM": cohort.ErrAlloc, "OTHER": cohort.ErrInternal,
}

// TestLibraryErrorsHaveSentinels checks that an error of the library becomes an error with the
// right sentinel, and that the program continues. One job shows them all.
func TestLibraryErrorsHaveSentinels(t *testing.T) {
	rank("damaged", func(w *cohort.Comm) error {
		for _, class := range slices.Sorted(maps.Keys(sentinels)) {
			if w.Rank() == 0 {
				must.OK(os.Setenv("DAMAGE", class)) // the tool reads it in each call
				err := cohort.Send(w, []int{1}, 1, mark)
				say("error %s: %v", class, err)
				if err := isFrom("send", err, sentinels[class]); err != nil {
					return fmt.Errorf("%s: %w", class, err)
				}
			}
			if err := traffic(w, 3); err != nil {
				return fmt.Errorf("after %s: %w", class, err)
			}
		}
		return nil
	})
	rank("operations", func(w *cohort.Comm) error {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		_, err = cohort.Recv(w, make([]int, 1), w.Rank(), mark)
		must.OK(isFrom("recv", err, cohort.ErrRank))
		must.OK(isFrom("isend", waited(cohort.Isend(w, []int{1}, w.Rank(), mark)), cohort.ErrRank))
		_, _, err = w.Iprobe(w.Rank(), mark)
		must.OK(isFrom("iprobe", err, cohort.ErrRank))
		// A failed collective breaks the communicator.
		err = cohort.Allreduce(d, make([]int32, mark), make([]int32, mark), cohort.Sum)
		must.OK(isFrom("allreduce", err, cohort.ErrOp))
		if err := d.Barrier(); !errors.Is(err, cohort.ErrBroken) || !errors.Is(err, cohort.ErrOp) {
			return fmt.Errorf("a barrier after that: %v", err)
		}
		return isFrom("ibarrier", waited(w.Ibarrier()), cohort.ErrComm)
	})
	inLibraries(t, func(t *testing.T, name string) {
		launcher(t, name)
		preload := "LD_PRELOAD=" + compiledTool(t, name, damage)
		t.Run("classes", func(t *testing.T) {
			all := start(t, name, 2, "damaged", preload).must(t).lines("error")
			if len(all) != len(sentinels) {
				t.Errorf("%d errors, want %d", len(all), len(sentinels))
			}
			t.Logf("%q", all)
		})
		t.Run("operations", func(t *testing.T) { start(t, name, 2, "operations", preload).must(t) })
	})
}
