//go:build cgo && linux && (amd64 || arm64) && !cohort_nocuda

package jobtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/tensor"
)

// awareTool makes a library report that it accepts device memory, and prints which long buffers its
// Bcast and Allreduce get, which are sent, and whether a device can be used in MPI_Finalize. It hides the switch from Open MPI: Debian's crashes.
const awareTool = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int MPIX_Query_cuda_support(void) { return 1; }
int MPIX_GPU_query_support(int type, int *flag) { *flag = type == 0; return 0; }
int MPI_Init_thread(int *c, char ***v, int want, int *got) { unsetenv("OMPI_MCA_opal_cuda_support"); return PMPI_Init_thread(c, v, want, got); }
int MPI_Finalize(void) {
	void *context = NULL, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	int rank;
	if (driver) ((int (*)(void **))dlsym(driver, "cuCtxGetCurrent"))(&context);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	printf("context%d %d\n", rank, context != NULL);
	fflush(stdout);
	return PMPI_Finalize();
}
static void see(const char *op, const void *b, int n, MPI_Datatype t) {
	int size, rank;
	char line[100];
	PMPI_Type_size(t, &size);
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (n > 4096 / size) fwrite(line, 1, snprintf(line, sizeof line, "%s%d %p\n", op, rank, b), stdout), fflush(stdout);
}
int MPI_Bcast(void *b, int n, MPI_Datatype t, int root, MPI_Comm c) { see("bcast", b, n, t); return PMPI_Bcast(b, n, t, root, c); }
int MPI_Allreduce(const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) { see("allreduce", r, n, t); return PMPI_Allreduce(s, r, n, t, op, c); }
int MPI_Isend(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *q) { see("isend", b, n, t); return PMPI_Isend(b, n, t, to, tag, c, q); }
`

const ompiCUDA = "OMPI_MCA_opal_cuda_support"

func setDevices() error {
	switch cmp.Or(os.Getenv("PMI_RANK"), os.Getenv("OMPI_COMM_WORLD_RANK")) {
	case "0":
		return nil
	case "1":
		return os.Setenv("COHORT_MPI_CUDA", "off")
	}
	return errors.Join(os.Setenv("MPIR_CVAR_ENABLE_GPU", "0"), os.Unsetenv(ompiCUDA))
}

// deviceNumbers is the number of 8-byte numbers in the tensors.
const deviceNumbers = 5000

// onDevices reduces and broadcasts a tensor on a device, and prints where it is. Only rank 1 has a
// deadline, for its second Allreduce.
func onDevices(w *cohort.Comm) error {
	for _, line := range w.Diagnostics() {
		if text, ok := strings.CutPrefix(line, "accepts GPU memory: "); ok {
			say("takes%d %s", w.Rank(), text)
		}
	}
	say("caps%d %s", w.Rank(), w.Caps().DeviceMemory)
	if w.Rank() == 0 {
		say("library %s", w.Caps().Library)
	}
	dev := must.Get(tensor.CUDA(0))
	c := must.Get(tensor.NewComm(w, nil))
	const n, ranks = deviceNumbers, 3
	host := make([]float64, n)
	for i := range host {
		host[i] = float64(w.Rank()*n + i)
	}
	from := must.Get(tensor.Of(host, n))
	t := must.Get(tensor.NewOn[float64](dev, n))
	say("tensor%d %#x", w.Rank(), t.Address())
	must.OK(errors.Join(tensor.Copy(t, from), tensor.Allreduce(c, t, t, tensor.Sum), tensor.Copy(from, t)))
	for i, v := range host {
		if want := float64(ranks*i + n*(0+1+2)); v != want {
			return fmt.Errorf("the sum has %v at %d, want %v", v, i, want)
		}
		host[i] = float64((w.Rank() + 1) * i)
	}
	mine := c
	if w.Rank() == 1 {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		mine = c.WithContext(ctx)
	}
	must.OK(errors.Join(tensor.Copy(t, from), tensor.Allreduce(mine, t, t, tensor.Sum), tensor.Copy(from, t)))
	for i, v := range host {
		if want := float64((1 + 2 + 3) * i); v != want {
			return fmt.Errorf("with a context on one rank the sum has %v at %d, want %v", v, i, want)
		}
		host[i] = float64((w.Rank() + 1) * i)
	}
	must.OK(errors.Join(tensor.Copy(t, from), tensor.Bcast(c, t, 1), tensor.Copy(from, t)))
	for i, v := range host {
		if want := float64(2 * i); v != want {
			return fmt.Errorf("rank 1 has sent %v at %d, want %v", v, i, want)
		}
	}
	return errors.Join(t.Close(), c.Close())
}

// TestAwareLibraryGetsDeviceMemory checks that a library which accepts device memory gets it. It
// does not if the library may have it switched off, if it was asked not to, or if a context of any
// rank turns a call into messages. The devices are stand-ins whose memory the host can read.
func TestAwareLibraryGetsDeviceMemory(t *testing.T) {
	program("devices", func() error {
		if err := setDevices(); err != nil {
			return err
		}
		return with(onDevices)
	})
	source, err := os.ReadFile("../../../internal/accel/cuda/testdata/standin.c")
	if err != nil {
		t.Fatal(err)
	}
	driver := compiledC(t, "gcc", string(source), "libcuda.so.1", "-shared", "-fPIC", "-lpthread")
	inLibraries(t, func(t *testing.T, name string) {
		aware := compiledTool(t, name, awareTool)
		e := start(t, name, 3, "devices", "LD_PRELOAD="+aware, "LD_LIBRARY_PATH="+filepath.Dir(driver), ompiCUDA+"=1").must(t)
		type takes struct{ takes, why string }
		off := map[string]takes{"mpich": {"no", "MPIR_CVAR_ENABLE_GPU=0"}, "openmpi": {"no", "set " + ompiCUDA + "=1"}}[name]
		if slices.ContainsFunc(e.lines("library"), func(l string) bool { return strings.HasPrefix(l, "Open MPI v5.") }) {
			off = takes{"yes", "it reports"} // MPICH has no such switch
		}
		for rank, want := range []takes{{"yes", "it reports"}, {"no", "CUDA is off"}, off} {
			of := func(what string) []string { return e.lines(fmt.Sprint(what, rank)) }
			if got := of("caps"); !slices.Equal(got, []string{want.takes}) {
				t.Errorf("rank %d: device memory is taken: %q, want %s", rank, got, want.takes)
			}
			if got := of("takes"); len(got) != 1 || !strings.HasPrefix(got[0], want.takes+" (") || !strings.Contains(got[0], want.why) {
				t.Errorf("rank %d: the diagnostics have %q, want %s because %s", rank, got, want.takes, want.why)
			}
			var from, sent uint64
			at := of("tensor")
			if len(at) != 1 {
				t.Fatalf("rank %d: the tensor is at %q", rank, at)
			}
			fmt.Sscan(at[0], &from)
			direct, calls := want.takes == "yes", map[string]int{"bcast": 1, "allreduce": 2}
			if name == "openmpi" { // its ranks agree on calls first: the second Allreduce is messages on all of them
				direct, calls["allreduce"] = false, 1
			}
			for coll, n := range calls {
				if got := of(coll); len(got) != n || slices.ContainsFunc(got, func(s string) bool { return (s == at[0]) != direct }) {
					t.Errorf("rank %d: the tensor is at %s, %d times %s gets %q, and it is to get that: %v", rank, at[0], n, coll, got, direct)
				}
			}
			usable := "0"
			if direct { // what the library has mapped of it can then be released
				usable = "1"
			}
			if got := of("context"); !slices.Equal(got, []string{usable}) {
				t.Errorf("rank %d: in MPI_Finalize a device is current: %q, and the library got its memory: %v", rank, got, direct)
			}
			messages := of("isend")
			if (len(messages) > 0) != (name == "openmpi") {
				t.Errorf("rank %d: long messages are sent from %q", rank, messages)
			}
			for _, s := range messages {
				if _, err := fmt.Sscan(s, &sent); err != nil || sent >= from && sent < from+8*deviceNumbers {
					t.Errorf("rank %d: the tensor is at %s, and a message is sent from %s", rank, at[0], s)
				}
			}
		}
		if t.Failed() {
			t.Log(e.out)
		}
	})
}
