package mpi

import (
	"strings"
	"testing"
)

func TestLimitsInForce(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Settings
		m    maker
		text string
		env  map[string]string
		want []string
	}{
		{"nothing asked", Settings{}, makeMPICH, "MPICH Device:    ch4:ofi\n", nil, nil},
		{"MPICH 5 over OFI", Settings{EagerLimit: 40000}, makeMPICH, "MPICH Version:\t5.0.1\nMPICH Device:    ch4:ofi\n",
			map[string]string{"MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD": "40000"},
			[]string{"16384 bytes, a cell of shared memory, which EagerLimit does not change on one node", "40000 bytes (MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD) between nodes"}},
		{"cells", Settings{EagerLimit: 1, BufferSize: 65536}, makeMPICH, "MPICH Device:\tch4:ofi\n",
			map[string]string{"MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE": "65536"}, []string{"65536 bytes (MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE), a cell"}},
		{"the user's name", Settings{EagerLimit: 1}, makeMPICH, "MPICH Device: ch4:ofi", map[string]string{"MPICH_CH4_OFI_EAGER_THRESHOLD": "9"},
			[]string{"9 bytes (MPICH_CH4_OFI_EAGER_THRESHOLD) between nodes"}},
		{"MPICH over UCX", Settings{EagerLimit: 40000}, makeMPICH, "MPICH Device:    ch4:ucx\n", map[string]string{"UCX_RNDV_THRESH": "40000"},
			[]string{"40000 bytes (UCX_RNDV_THRESH) on one node"}},
		{"Open MPI", Settings{EagerLimit: 40000}, makeOpenMPI, "Open MPI v5.0.10", map[string]string{"OMPI_MCA_btl_sm_eager_limit": "40000"},
			[]string{"40000 bytes (OMPI_MCA_btl_sm_eager_limit) on one node", "the library's own limit between nodes"}},
	} {
		got := c.s.limits(c.m, c.text, func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if (got == "") != (c.want == nil) {
			t.Errorf("%s: got %q", c.name, got)
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: got %q, want %q in it", c.name, got, w)
			}
		}
	}
}

// TestBufferSizeSetsThePackBuffer checks that the buffer for packing is as large as a cell. MPICH
// from 4.1 on aborts in MPI_Init otherwise.
func TestBufferSizeSetsThePackBuffer(t *testing.T) {
	for _, c := range []struct {
		version, size string
		n             int
	}{{"4.0.2", "", 65536}, {"4.2.1", "65536", 65536}, {"5.0.2", "16384", 4096}} {
		list := variablesSet(t, Settings{BufferSize: c.n}, "mpich", "MPICH", c.version, nil)
		got := ""
		for _, v := range list {
			if after, ok := strings.CutPrefix(v, "MPIR_CVAR_CH4_PACK_BUFFER_SIZE="); ok {
				got = after
			}
		}
		if got != c.size {
			t.Errorf("MPICH %s, BufferSize %d: got %q, want %q", c.version, c.n, got, c.size)
		}
	}
}
