//go:build cgo && linux

package mpi

import (
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// variables is an environment.
type variables map[string]string

func (v variables) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// TestDeviceCollsFollowQuirksAndConfig checks which collectives pass buffers to the library
// unchanged. That depends on the library's known defects and on the job's settings.
func TestDeviceCollsFollowQuirksAndConfig(t *testing.T) {
	for _, c := range []struct {
		name            string
		vendor, version string
		change          func(p *process)
		are, not        []backend.Coll
	}{
		{"MPICH", "MPICH", "4.0.2", nil,
			[]backend.Coll{backend.Bcast, backend.Allreduce, backend.Allgatherv, backend.Alltoallv, backend.ReduceScatterBlock},
			[]backend.Coll{backend.Barrier, backend.Reduce}}, // wrong in place
		{"before MPI-4", "MPICH", "3.4.1", func(p *process) { p.lib.large = false },
			[]backend.Coll{backend.Bcast, backend.Allreduce, backend.Allgatherv, backend.Alltoall},
			[]backend.Coll{backend.Alltoallv, backend.Gatherv}}, // whose counts are not known to all ranks
		// Where the ranks agree first, any rank's context makes the call a schedule on all.
		{"Open MPI", "Open MPI", "4.1.4", nil, nil,
			[]backend.Coll{backend.Bcast, backend.Reduce, backend.Allreduce, backend.Allgather, backend.Allgatherv, backend.Alltoall, backend.Alltoallv}},
		{"checked", "MPICH", "4.0.2", func(p *process) { p.job.agreement = agreeToCheck }, nil,
			[]backend.Coll{backend.Bcast, backend.Allreduce, backend.Allgather, backend.Allgatherv, backend.Alltoall, backend.Alltoallv}},
		{"deterministic", "MPICH", "4.0.2", func(p *process) { p.job.deterministic = true },
			[]backend.Coll{backend.Bcast, backend.Allgather}, []backend.Coll{backend.Allreduce, backend.ReduceScatterBlock, backend.Scan}},
		{"bounded", "MPICH", "4.0.2", func(p *process) { p.job.agreement = agreeToEnd }, nil, []backend.Coll{backend.Bcast, backend.Allreduce}},
		{"one thread", "MPICH", "4.0.2", func(p *process) { p.job.polled = true }, nil, []backend.Coll{backend.Bcast, backend.Allreduce}},
	} {
		r := mpiquirks.ParseRelease(c.version)
		q := mpiquirks.QuirksIn(mpiquirks.Of(mpifind.Unknown, c.vendor, r), r)
		p := &process{lib: library{quirks: q, guard: q.Has(mpiquirks.QuirkOverrun), large: true, colls: newUsableColls(q), level: libmpi.Multiple}}
		for op := range p.ops.predefined {
			p.ops.predefined[op] = libmpi.Op(1) // as if the library were loaded
		}
		if c.change != nil {
			c.change(p)
		}
		colls := p.deviceColls()
		for _, coll := range c.are {
			if colls>>coll&1 == 0 {
				t.Errorf("%s: the library does not get the buffers of %v", c.name, coll)
			}
		}
		for _, coll := range c.not {
			if colls>>coll&1 != 0 {
				t.Errorf("%s: the library gets the buffers of %v", c.name, coll)
			}
		}
	}
}

// TestDeviceMemoryFollowsLibraryAndSwitches checks that device memory is accepted if the library
// reports it and has it switched on. The settings and the thread level come first. The meaning of
// the variables is from the libraries' manuals.
func TestDeviceMemoryFollowsLibraryAndSwitches(t *testing.T) {
	type env = variables
	const level = libmpi.Multiple
	for _, c := range []struct {
		vendor, version string
		env             env
		asked           string
		says            int
		level           libmpi.Level
		polled          bool
		want, why       string
	}{
		{"MPICH", "4.0.2", nil, "", 1, level, false, "yes", "it reports"},
		{"MPICH", "4.0.2", nil, "on", 1, libmpi.Serialized, false, "yes", "it reports"},
		{"MPICH", "4.0.2", nil, "auto", 0, level, false, "no", "it reports"},
		{"MPICH", "4.0.2", nil, "on", 0, level, false, "no", "it reports"},
		{"MPICH", "4.0.2", nil, "", -1, level, false, "unknown", "does not report"},
		{"MPICH", "4.0.2", nil, "off", 1, level, false, "no", "CUDA is off"},
		{"MPICH", "4.0.2", nil, "", 1, libmpi.Funneled, false, "no", "funneled"},
		{"MPICH", "4.0.2", nil, "", 1, level, true, "no", "one call at a time: some rank has thread level serialized, or the job has one rank"},
		{"MPICH", "4.0.2", env{"MPIR_CVAR_ENABLE_GPU": "0"}, "", 1, level, false, "no", "MPIR_CVAR_ENABLE_GPU=0"},
		{"MPICH", "3.4.1", env{"MPICH_ENABLE_GPU": "0"}, "", -1, level, false, "no", "MPICH_ENABLE_GPU=0"},
		{"MPICH", "4.0.2", env{"MPIR_CVAR_ENABLE_GPU": "1", "MPICH_ENABLE_GPU": "0"}, "", 1, level, false, "no", "MPICH_ENABLE_GPU=0"},
		{"MPICH", "4.0.2", env{"MPIR_CVAR_ENABLE_GPU": "1"}, "", -1, level, false, "unknown", "does not report"}, // it may be built without
		{"MPICH", "4.0.2", env{"MV2_USE_CUDA": "0", "I_MPI_OFFLOAD": "0", "OMPI_MCA_opal_cuda_support": "0"}, "", 1, level, false, "yes", "it reports"},
		// Before 5.0 Open MPI reports how it was built.
		{"Open MPI", "4.1.4", nil, "", 1, level, false, "no", "set OMPI_MCA_opal_cuda_support=1"},
		{"Open MPI", "4.1.4", nil, "on", 1, level, false, "no", "set OMPI_MCA_opal_cuda_support=1"},
		{"Open MPI", "", nil, "", 1, level, false, "no", "set OMPI_MCA_opal_cuda_support=1"},
		{"IBM Spectrum MPI", "10.4", nil, "", 1, level, false, "no", "set OMPI_MCA_opal_cuda_support=1"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "1"}, "", 1, level, false, "yes", "it reports"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "true"}, "on", 1, level, false, "yes", "it reports"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_mpi_cuda_support": "1"}, "", 1, level, false, "yes", "it reports"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "1"}, "", 0, level, false, "no", "it reports"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "1"}, "off", 1, level, false, "no", "CUDA is off"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "0"}, "on", 1, level, false, "no", "OMPI_MCA_opal_cuda_support=0"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "false"}, "", 1, level, false, "no", "OMPI_MCA_opal_cuda_support=false"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "1", "OMPI_MCA_mpi_cuda_support": "0"}, "", 1, level, false, "no", "mpi_cuda_support=0"},
		{"Open MPI", "4.1.4", nil, "", -1, level, false, "unknown", "does not report"},
		{"Open MPI", "4.1.4", env{"OMPI_MCA_opal_cuda_support": "1"}, "", -1, level, false, "unknown", "does not report"},
		{"Open MPI", "5.0.10", nil, "", 1, level, false, "yes", "it reports"},
		{"Open MPI", "5.0.10", nil, "", -1, level, false, "unknown", "does not report"},
		{"Open MPI", "5.0.10", env{"OMPI_MCA_opal_cuda_support": "0"}, "", 1, level, false, "yes", "it reports"}, // which it no longer has
		// A library of unknown make has the standard ABI, which no Open MPI before 5.0 has.
		{"", "", nil, "", 1, level, false, "yes", "it reports"},
		// Libraries that are off by default, most of which do not report it.
		{"Cray MPICH", "8.1.25.17", nil, "", -1, level, false, "no", "set MPICH_GPU_SUPPORT_ENABLED=1"},
		{"Cray MPICH", "8.1.25.17", env{"MPICH_GPU_SUPPORT_ENABLED": "0"}, "", -1, level, false, "no", "MPICH_GPU_SUPPORT_ENABLED=0"},
		{"Cray MPICH", "8.1.25.17", env{"MPICH_GPU_SUPPORT_ENABLED": "1"}, "", -1, level, false, "no", "libmpi_gtl_cuda.so"},
		{"Cray MPICH", "8.1.25.17", env{"MPICH_GPU_SUPPORT_ENABLED": "1", "mapped": "libmpi_gtl_hsa.so.0"}, "", -1, level, false, "no", "libmpi_gtl_cuda.so"},
		{"Cray MPICH", "8.1.25.17", env{"MPICH_GPU_SUPPORT_ENABLED": "1", "mapped": "libmpi_gtl_cuda.so.0"}, "on", -1, level, false, "yes", "MPICH_GPU_SUPPORT_ENABLED=1"},
		{"Cray MPICH", "8.1.25.17", env{"MPICH_GPU_SUPPORT_ENABLED": "1", "mapped": "libmpi_gtl_cuda.so.0"}, "off", -1, level, false, "no", "CUDA is off"},
		{"Intel MPI", "2021.18", nil, "", -1, level, false, "no", "set I_MPI_OFFLOAD=1"},
		{"Intel MPI", "2021.18", nil, "", 1, level, false, "no", "set I_MPI_OFFLOAD=1"},
		{"Intel MPI", "2021.18", env{"I_MPI_OFFLOAD": "0"}, "", -1, level, false, "no", "I_MPI_OFFLOAD=0"},
		{"Intel MPI", "2021.18", env{"I_MPI_OFFLOAD": "1"}, "", -1, level, false, "unknown", "set I_MPI_OFFLOAD_MODE=cuda"},
		{"Intel MPI", "2021.18", env{"I_MPI_OFFLOAD": "1", "I_MPI_OFFLOAD_MODE": "level_zero"}, "", -1, level, false, "unknown", "set I_MPI_OFFLOAD_MODE=cuda"},
		{"Intel MPI", "2021.18", env{"I_MPI_OFFLOAD": "1", "I_MPI_OFFLOAD_MODE": "cuda"}, "", -1, level, false, "yes", "I_MPI_OFFLOAD=1"},
		{"Intel MPI", "2021.18", env{"I_MPI_OFFLOAD": "1"}, "", 1, level, false, "yes", "it reports"},
		{"MVAPICH", "2.3.7", nil, "", 1, level, false, "no", "set MV2_USE_CUDA=1"},
		{"MVAPICH", "2.3.7", env{"MV2_USE_CUDA": "1"}, "", -1, level, false, "yes", "MV2_USE_CUDA=1"},
		{"MVAPICH", "2.3.7", env{"MV2_USE_CUDA": "1"}, "", 0, level, false, "no", "it reports"},
		{"MVAPICH", "3.0", env{"MV2_USE_CUDA": "1"}, "", -1, level, false, "unknown", "does not report"}, // which it no longer has
	} {
		m := mpiquirks.Of(mpifind.Unknown, c.vendor, mpiquirks.ParseRelease(c.version))
		p := &process{lib: library{level: c.level, implementation: m, quirks: mpiquirks.QuirksIn(m, mpiquirks.ParseRelease(c.version))}, job: job{polled: c.polled}}
		around := surroundings{c.env.lookup, func(file string) bool { return strings.HasPrefix(c.env["mapped"], file) }}
		got, why := p.deviceMemory(c.asked, c.says, around)
		if got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s %s with %v: asked %q, the library says %d, level %v, polled %v: %s because %q, want %s because %q",
				c.vendor, c.version, c.env, c.asked, c.says, c.level, c.polled, got, why, c.want, c.why)
		}
	}
}
