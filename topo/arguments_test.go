package topo_test

import (
	"testing"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/internal/test/misuse"
	"github.com/cohort-hpc/cohort/topo"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	all := misuse.Package{
		Funcs: []any{
			topo.ReadLimits, topo.ExpandCounts, topo.NewCPUSet, topo.ParseCPUSet, topo.ExpandHosts, topo.ThisJob,
			topo.ReadJob, topo.ParsePolicy, topo.Read, topo.Room, topo.Sharers, topo.Here,
		},
		Makes: []func() any{
			func() any { return fstest.MapFS{} },
			func() any { return topo.NewCPUSet(0, 1) },
			func() any { return topo.ThisJob() },
			func() any { return topo.Limits{} },
			func() any { return &topo.Node{} },
			func() any { return &topo.Plan{} },
			func() any { return topo.None },
			func() any { return topo.Problem{} },
			func() any { return topo.Summary{} },
		},
		NoNil: true,
	}
	all.Call(t)
}
