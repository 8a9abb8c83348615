package mpiquirks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// variables is an environment.
type variables map[string]string

func (v variables) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// variablesSet returns the variables that the settings set, as NAME=VALUE.
func variablesSet(t *testing.T, s Settings, family mpifind.Family, vendor, version string, env variables) []string {
	t.Helper()
	list, err := s.Environment(family, vendor, version, env.lookup)
	if err != nil {
		t.Fatalf("%+v for %s %s: %v", s, vendor, version, err)
	}
	var of []string
	for _, l := range list {
		if l.Applied {
			of = append(of, l.Name+"="+l.Value)
		}
	}
	return of
}

// everywhere are the variables set for every library.
var everywhere = []string{"UCX_HANDLE_ERRORS=none", "UCX_DEBUG_SIGNO=0", "IPATH_NO_BACKTRACE=1", "HFI_NO_BACKTRACE=1"}

func TestSettingsBecomeVariables(t *testing.T) {
	for _, c := range []struct {
		what                    string
		s                       Settings
		family, vendor, version string
		want                    []string
	}{
		{"nothing", Settings{}, "mpich", "MPICH", "4.0.2", nil},
		{"nothing", Settings{CUDA: "auto"}, "openmpi", "Open MPI", "4.1.4", nil},
		{"nothing of an unknown library", Settings{}, "standard", "", "", nil},
		{"affinity", Settings{}, "mpich", "MVAPICH", "2.3.7", []string{"MV2_ENABLE_AFFINITY=0"}},
		{"eager", Settings{EagerLimit: 20000}, "mpich", "MPICH", "4.0.2",
			[]string{"UCX_RNDV_THRESH=20000", "MPIR_CVAR_CH3_EAGER_MAX_MSG_SIZE=20000", "MPIR_CVAR_CH4_OFI_EAGER_MAX_MSG_SIZE=20000"}},
		{"eager", Settings{EagerLimit: 20000}, "standard", "MPICH", "5.0.1",
			[]string{"UCX_RNDV_THRESH=20000", "MPIR_CVAR_CH3_EAGER_MAX_MSG_SIZE=20000", "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD=20000"}},
		{"eager", Settings{EagerLimit: 20000}, "openmpi", "Open MPI", "4.1.4",
			[]string{"UCX_RNDV_THRESH=20000", "OMPI_MCA_btl_vader_eager_limit=20000", "OMPI_MCA_btl_tcp_eager_limit=20000"}},
		{"eager", Settings{EagerLimit: 20000}, "openmpi", "Open MPI", "5.0.10",
			[]string{"UCX_RNDV_THRESH=20000", "OMPI_MCA_btl_sm_eager_limit=20000", "OMPI_MCA_btl_tcp_eager_limit=20000"}},
		{"eager of an unknown version", Settings{EagerLimit: 20000}, "openmpi", "Open MPI", "",
			[]string{"UCX_RNDV_THRESH=20000", "OMPI_MCA_btl_vader_eager_limit=20000", "OMPI_MCA_btl_sm_eager_limit=20000", "OMPI_MCA_btl_tcp_eager_limit=20000"}},
		{"buffer", Settings{BufferSize: 65536}, "mpich", "MPICH", "4.0.2",
			[]string{"UCX_MM_SEG_SIZE=65536", "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE=65536"}},
		{"buffer", Settings{BufferSize: 65536}, "mpich", "Intel MPI", "2021.7",
			[]string{"I_MPI_SHM_CELL_FWD_SIZE=65536", "I_MPI_SHM_CELL_BWD_SIZE=65536"}},
		{"both", Settings{EagerLimit: 1000, BufferSize: 65536}, "openmpi", "Open MPI", "4.1.4",
			[]string{"UCX_RNDV_THRESH=1000", "OMPI_MCA_btl_vader_eager_limit=1000", "OMPI_MCA_btl_tcp_eager_limit=1000", "UCX_MM_SEG_SIZE=65536", "OMPI_MCA_btl_vader_max_send_size=65536"}},
		{"CUDA", Settings{CUDA: "on"}, "mpich", "MPICH", "4.0.2", []string{"MPIR_CVAR_ENABLE_GPU=1"}},
		{"CUDA", Settings{CUDA: "off"}, "mpich", "MPICH", "4.0.2", []string{"MPIR_CVAR_ENABLE_GPU=0"}},
		{"CUDA", Settings{CUDA: "on"}, "mpich", "Intel MPI", "2021.18", []string{"I_MPI_OFFLOAD=1", "I_MPI_OFFLOAD_MODE=cuda"}},
		{"CUDA", Settings{CUDA: "on"}, "mpich", "Cray MPICH", "8.1.25.17", []string{"MPICH_GPU_SUPPORT_ENABLED=1"}},
		{"CUDA", Settings{CUDA: "off"}, "openmpi", "Open MPI", "4.1.4", []string{"OMPI_MCA_opal_cuda_support=0"}},
		{"CUDA", Settings{CUDA: "on"}, "openmpi", "Open MPI", "5.0.10", []string{"OMPI_MCA_accelerator=cuda"}},
		{"CUDA", Settings{CUDA: "off"}, "standard", "Open MPI", "6.0.0", []string{"OMPI_MCA_accelerator=null"}},
		{"yield", Settings{Oversubscribed: true}, "mpich", "MPICH", "4.0.2", []string{"MPIR_CVAR_POLLS_BEFORE_YIELD=1"}},
		{"yield", Settings{Oversubscribed: true}, "mpich", "MPICH", "5.0.1",
			[]string{"MPIR_CVAR_POLLS_BEFORE_YIELD=1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE=1"}},
		{"yield", Settings{Oversubscribed: true}, "openmpi", "Open MPI", "4.1.4", []string{"OMPI_MCA_mpi_yield_when_idle=1"}},
		{"yield, where there is no setting", Settings{Oversubscribed: true}, "mpich", "Cray MPICH", "8.1.25.17", nil},
		{"profiling", Settings{Profiling: true}, "openmpi", "Open MPI", "4.1.4",
			[]string{"OMPI_MCA_pml_monitoring_enable=1", "OMPI_MCA_pml_monitoring_enable_output=2"}},
		{"profiling, where there is no setting", Settings{Profiling: true}, "mpich", "MPICH", "4.0.2", nil},
		{"tuning", Settings{Tuning: map[string]string{"allreduce": "ring", "reducescatterblock": "butterfly", "bcast": "auto"}}, "openmpi", "Open MPI", "4.1.4",
			[]string{"OMPI_MCA_coll_tuned_use_dynamic_rules=1", "OMPI_MCA_coll_tuned_allreduce_algorithm=ring", "OMPI_MCA_coll_tuned_reduce_scatter_block_algorithm=butterfly"}},
		{"tuning by number", Settings{Tuning: map[string]string{"allreduce": "4"}}, "openmpi", "Open MPI", "4.1.4",
			[]string{"OMPI_MCA_coll_tuned_use_dynamic_rules=1", "OMPI_MCA_coll_tuned_allreduce_algorithm=ring"}},
		{"tuning", Settings{Tuning: map[string]string{"Reduce_scatter": "pairwise"}}, "mpich", "MPICH", "4.0.2",
			[]string{"MPIR_CVAR_REDUCE_SCATTER_INTRA_ALGORITHM=pairwise"}},
		{"tuning", Settings{Tuning: map[string]string{"allreduce": "ring"}}, "mpich", "MPICH", "4.1.2", []string{"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring"}},
		{"tuning", Settings{Tuning: map[string]string{"allreduce": "rabenseifner", "bcast": "11"}}, "mpich", "Intel MPI", "2021.7",
			[]string{"I_MPI_ADJUST_ALLREDUCE=2", "I_MPI_ADJUST_BCAST=11"}},
	} {
		t.Run(fmt.Sprintf("%s/%s %s", c.what, c.vendor, c.version), func(t *testing.T) {
			got, want := variablesSet(t, c.s, families[c.family], c.vendor, c.version, nil), slices.Concat(everywhere, c.want)
			if !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

// TestUserVariablesStay checks that the user's values stay, also under other names that the library
// reads.
func TestUserVariablesStay(t *testing.T) {
	env := variables{"UCX_HANDLE_ERRORS": "bt", "MPICH_ENABLE_GPU": "0", "HFI_NO_BACKTRACE": ""}
	list, err := Settings{CUDA: "on"}.Environment(mpifind.MPICH, "MPICH", "4.0.2", env.lookup)
	if err != nil {
		t.Fatal(err)
	}
	stays := map[string]string{"UCX_HANDLE_ERRORS": "UCX_HANDLE_ERRORS=bt", "MPIR_CVAR_ENABLE_GPU": "MPICH_ENABLE_GPU=0", "HFI_NO_BACKTRACE": "HFI_NO_BACKTRACE="}
	for _, l := range list {
		user, ok := stays[l.Name]
		if l.Applied == ok || l.User != user {
			t.Errorf("%+v: want the user's %q", l, user)
		}
		if l.Why == "" || !strings.Contains(l.String(), l.Name+"="+l.Value) || !strings.Contains(l.String(), l.User) {
			t.Errorf("%+v is written %q", l, l)
		}
		delete(stays, l.Name)
	}
	if len(stays) > 0 {
		t.Errorf("nothing is said of %v", slices.Sorted(maps.Keys(stays)))
	}
	// The user has to set CUDA for Open MPI 4.
	env = variables{"OMPI_MCA_opal_cuda_support": "1"}
	if got := variablesSet(t, Settings{CUDA: "on"}, mpifind.OpenMPI, "Open MPI", "4.1.4", env); !slices.Equal(got, everywhere) {
		t.Errorf("got %v", got)
	}
}

func TestImpossibleSettingsAreRejected(t *testing.T) {
	tuning := func(op, algorithm string) Settings { return Settings{Tuning: map[string]string{op: algorithm}} }
	for _, c := range []struct {
		s                       Settings
		family, vendor, version string
		says                    []string // parts of the message
	}{
		{Settings{CUDA: "yes"}, "mpich", "MPICH", "4.0.2", []string{`"yes"`, "auto"}},
		{Settings{EagerLimit: -1}, "mpich", "MPICH", "4.0.2", []string{"-1"}},
		{Settings{EagerLimit: 32}, "openmpi", "Open MPI", "4.1.4", []string{"EagerLimit 32", "256 to 1073741824"}},
		{Settings{EagerLimit: 1<<30 + 1}, "openmpi", "Open MPI", "4.1.4", []string{"EagerLimit 1073741825"}},
		{Settings{BufferSize: 3}, "mpich", "MPICH", "4.0.2", []string{"BufferSize 3", "512 to 1048576"}},
		{Settings{BufferSize: 1 << 30}, "mpich", "MPICH", "4.0.2", []string{"BufferSize 1073741824"}},
		{Settings{EagerLimit: 1000}, "mpich", "Intel MPI", "2021.7", []string{"Intel MPI 2021.7", "EagerLimit", "BufferSize", "Tuning"}},
		{Settings{BufferSize: 1000}, "mpich", "Cray MPICH", "8.1.25.17", []string{"Cray MPICH", "BufferSize", "CUDA on"}},
		{Settings{CUDA: "on"}, "mpich", "MPICH", "3.3.2", []string{"MPICH 3.3.2", "CUDA on", "EagerLimit"}},
		{Settings{CUDA: "on"}, "openmpi", "Open MPI", "4.1.4", []string{"crashes", "OMPI_MCA_opal_cuda_support=1"}},
		{Settings{CUDA: "on"}, "openmpi", "", "", []string{"crashes"}},
		{tuning("allreduce", "fast"), "openmpi", "Open MPI", "4.1.4", []string{"allreduce=fast", "recursive_doubling, ring"}},
		{tuning("allreduce", "7"), "openmpi", "Open MPI", "4.1.4", []string{"allreduce=7"}},
		{tuning("allgather", "sparbit"), "openmpi", "Open MPI", "4.1.4", []string{"sparbit"}},
		{tuning("gatherv", "linear"), "openmpi", "Open MPI", "4.1.4", []string{"gatherv", "no choice"}},
		{tuning("allreduce", "ring"), "mpich", "MPICH", "4.0.2", []string{"reduce_scatter_allgather"}},
		{tuning("reduce", "nb"), "mpich", "MPICH", "4.0.2", []string{"binomial, smp"}},
		{tuning("allreduce", "nb"), "mpich", "MPICH", "4.0.2", []string{"smp, recursive_doubling"}},
		{tuning("reduce_scatter_block", "nb"), "mpich", "MPICH", "4.0.2", []string{"noncommutative"}},
		{tuning("reduce_scatter", "nb"), "mpich", "MPICH", "4.0.2", []string{"pairwise"}},
		{tuning("reduce_scatter", "noncommutative"), "mpich", "MPICH", "4.0.2", []string{"has pairwise"}},
		{tuning("scan", "nb"), "mpich", "MPICH", "4.0.2", []string{"smp, recursive_doubling"}},
		{tuning("exscan", "nb"), "mpich", "MPICH", "4.0.2", []string{"recursive_doubling"}},
		{tuning("allreduce", "3"), "mpich", "MPICH", "4.0.2", []string{"allreduce=3"}},
		{tuning("barrier", "dissemination"), "mpich", "MPICH", "4.2.0", []string{"k_dissemination"}},
		{tuning("allreduce", "ring"), "mpich", "Cray MPICH", "8.1.25.17", []string{"Cray MPICH", "does not know"}},
		{tuning("sort", "ring"), "mpich", "MPICH", "4.0.2", []string{`"sort"`}},
	} {
		_, err := c.s.Environment(families[c.family], c.vendor, c.version, variables{}.lookup)
		if !errors.Is(err, backend.ErrInit) {
			t.Errorf("%+v for %s %s: %v", c.s, c.vendor, c.version, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%+v for %s %s: %q does not say %q", c.s, c.vendor, c.version, err, part)
			}
		}
	}
}

// TestKnobTableIsConsistent checks names and versions, and that no variable appears twice for one
// library and version.
func TestKnobTableIsConsistent(t *testing.T) {
	for i, k := range knobs {
		if k.name == "" || k.value == "" || k.why == "" {
			t.Errorf("row %d is not complete: %+v", i, k)
		}
		for _, v := range []string{k.from, k.before} {
			if v != "" && !ParseRelease(v).known {
				t.Errorf("%s: version %q", k.name, v)
			}
		}
		if counts := k.option == optEager || k.option == optBuffer; counts != strings.HasPrefix(k.value, "$") {
			t.Errorf("%s=%s is not what %v needs", k.name, k.value, k.option)
		}
	}
	for coll := backend.Barrier; coll <= backend.Exscan; coll++ {
		if collNamed(mpiName(coll)) != coll || collNamed(coll.String()) != coll {
			t.Errorf("%v is not found by its names", coll)
		}
	}
	for m := Unknown; int(m) < len(implementationNames); m++ {
		for coll, list := range algorithms(m) {
			for i, a := range list {
				if slices.ContainsFunc(list[:i], func(b algorithm) bool { return b.name == a.name }) {
					t.Errorf("%v: %v has %s twice", m, coll, a.name)
				}
			}
		}
	}
}

func TestSettingsAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString("| option | library | versions | variable |\n|---|---|---|---|\n")
	for o := optAlways; o <= optProfile; o++ {
		for _, k := range knobs {
			if k.option != o {
				continue
			}
			who := "all"
			if k.of != nil {
				var names []string
				for _, m := range k.of {
					if !slices.Contains([]Implementation{Unknown, UnknownMPICH, UnknownOpenMPI}, m) {
						names = append(names, m.String())
					}
				}
				who = strings.Join(names, ", ")
			}
			value := strings.Replace(k.value, "$", "N", 1)
			fmt.Fprintf(&b, "| %s | %s | %s | `%s=%s` |\n", o, who, span(k.from, k.before), k.name, value)
		}
	}
	inDocument(t, "settings", b.String())
}
