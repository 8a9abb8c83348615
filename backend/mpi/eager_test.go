//go:build cgo && linux

package mpi

import (
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func TestEagerBytesFollowEnvironment(t *testing.T) {
	for _, c := range []struct {
		environ []string
		want    int
	}{
		{nil, 2048},
		{[]string{"HOME=/", "OMPI_MCA_btl=self,vader", "OMPI_MCA_btl_vader_max_send_size=100"}, 2048},
		{[]string{"OMPI_MCA_btl_tcp_eager_limit=65536", "OMPI_MCA_btl_vader_eager_limit=4096"}, 2048},
		{[]string{"OMPI_MCA_btl_tcp_eager_limit=65536", "OMPI_MCA_btl_vader_eager_limit=600"}, 300},
		{[]string{"OMPI_MCA_btl_sm_eager_limit=0x100"}, 128},
		{[]string{"OMPI_MCA_btl_sm_eager_limit=0"}, 0},
		{[]string{"OMPI_MCA_btl_sm_eager_limit=4k"}, 0},
		{[]string{"UCX_RNDV_THRESH=600", "OMPI_MCA_btl_sm_eager_limit=4096"}, 300},
		{[]string{"UCX_RNDV_THRESH=intra:600"}, 0},
	} {
		if got := eagerBytes(c.environ); got != c.want {
			t.Errorf("with %q %d bytes are sent at once, want %d", c.environ, got, c.want)
		}
	}
}

func TestTuningIsSeenInEnvironment(t *testing.T) {
	for _, c := range []struct {
		environ []string
		want    bool
	}{
		{nil, false},
		{[]string{"HOME=/", "OMPI_MCA_coll_hcoll_enable=0", "OMPI_MCA_coll=^hcoll", "COHORT_MPI_TUNING="}, false},
		{[]string{"HOME=/", "OMPI_MCA_coll_tuned_use_dynamic_rules=1"}, true},
		{[]string{"OMPI_MCA_coll_han_priority=100"}, true},
		{[]string{"OMPI_MCA_coll=self,han,basic"}, true},
	} {
		if got := isTuned(c.environ); got != c.want {
			t.Errorf("with %q isTuned is %v", c.environ, got)
		}
	}
}

func TestUnknownThreadLevelIsErrInit(t *testing.T) {
	if _, err := levelOf("many"); backend.Code(err) != backend.Code(backend.ErrInit) || !strings.Contains(err.Error(), `"many": want single`) {
		t.Errorf("got %v", err)
	}
}
