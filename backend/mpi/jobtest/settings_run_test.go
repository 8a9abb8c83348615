//go:build cgo && linux

package jobtest

import (
	"maps"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// cvarTool prints, once the library is initialized, the control variables that CVARS names, by
// MPI's interface for tools.
const cvarTool = `
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void show(const char *name) {
	char line[600], desc[400] = "", value[400] = "none";
	int i, level, verbosity, bind, scope, count = 0, size, n = sizeof line / 3, dn = sizeof desc;
	MPI_Datatype type;
	MPI_T_enum e;
	MPI_T_cvar_handle h;
	if (!MPI_T_cvar_get_index(name, &i) && !MPI_T_cvar_get_info(i, line, &n, &verbosity, &type, &e, desc, &dn, &bind, &scope) &&
	    bind == MPI_T_BIND_NO_OBJECT && !MPI_T_cvar_handle_alloc(i, NULL, &h, &count) && count == 1) {
		union { int i; long l; char c[8]; } u = {.l = 0};
		PMPI_Type_size(type, &size);
		if (!MPI_T_cvar_read(h, &u)) snprintf(value, sizeof value, "%ld", size == 4 ? (long)u.i : u.l);
		MPI_T_cvar_handle_free(&h);
	}
	level = snprintf(line, sizeof line, "cvar %s %s\n", name, value);
	fwrite(line, 1, level, stdout);
}
int MPI_Init_thread(int *c, char ***v, int want, int *got) {
	int rc = PMPI_Init_thread(c, v, want, got), level;
	MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
	char *names = strdup(getenv("CVARS"));
	for (char *s = strtok(names, " "); s; s = strtok(NULL, " ")) show(s);
	free(names);
	fflush(stdout);
	MPI_T_finalize();
	return rc;
}
`

// TestSettingsReachTheLibrary checks that the library reports the values that Config sets: numbers
// as requested, and algorithms as its own variables choose them.
func TestSettingsReachTheLibrary(t *testing.T) {
	skipShort(t, "settings as the library reads them")
	rank("world", func(w *cohort.Comm) error { return traffic(w, 1) })
	for _, c := range []struct {
		name, tuning string
		numbers      map[string]string
		own          []string // the library's own variables for the tuning
		cvar         string
	}{
		{"mpich", "allreduce=recursive_doubling", map[string]string{
			"MPIR_CVAR_CH3_EAGER_MAX_MSG_SIZE": "20480", "MPIR_CVAR_CH4_OFI_EAGER_MAX_MSG_SIZE": "20480", "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE": "65536",
		}, []string{"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=recursive_doubling"}, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"},
		{"openmpi", "allreduce=ring", map[string]string{
			"btl_vader_eager_limit": "20480", "btl_tcp_eager_limit": "20480", "btl_vader_max_send_size": "65536",
		}, []string{"OMPI_MCA_coll_tuned_use_dynamic_rules=1", "OMPI_MCA_coll_tuned_allreduce_algorithm=ring"}, "coll_tuned_allreduce_algorithm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			launcher(t, c.name)
			compiler, flags := mpicc(t, c.name), []string{"-shared", "-fPIC"}
			asked := "CVARS=" + c.cvar
			for name := range c.numbers {
				asked += " " + name
			}
			has := func(tool string, env ...string) map[string]string {
				e := start(t, c.name, 2, "world", append(env, asked, "LD_PRELOAD="+tool)...).must(t)
				of := make(map[string]string)
				for _, line := range e.lines("cvar") { // both ranks print the same
					name, value, _ := strings.Cut(line, " ")
					of[name] = value
				}
				return of
			}
			tool := compiledC(t, "gcc", cvarTool, "cvars.so", append(flags, includes(t, compiler, c.name == "openmpi")...)...)
			before, want := has(tool, c.own...), maps.Clone(c.numbers)
			for name, value := range c.numbers {
				if was := before[name]; was == "" || was == "none" || was == value {
					t.Errorf("without Config %s is %q, and is to become %s", name, was, value)
				}
			}
			// The algorithms are numbered from 0, which leaves the choice to the library.
			if want[c.cvar] = before[c.cvar]; want[c.cvar] == "" || want[c.cvar] == "none" || want[c.cvar] == "0" {
				t.Errorf("with %q %s is %q", c.own, c.cvar, want[c.cvar])
			}
			for how, tool := range map[string]string{"the library is loaded": tool, "it is in the process": compiledC(t, compiler, cvarTool, "cvars.so", flags...)} {
				if got := has(tool, "COHORT_MPI_EAGER=20480", "COHORT_MPI_BUFFER=65536", "COHORT_MPI_TUNING="+c.tuning); !maps.Equal(got, want) {
					t.Errorf("%s: the library has %v, want %v", how, got, want)
				}
			}
		})
	}
}

// TestLateSettingsAreReported checks that settings which come too late are reported as not set.
func TestLateSettingsAreReported(t *testing.T) {
	skipShort(t, "settings that come too late")
	rank("settings", func(w *cohort.Comm) error {
		for _, line := range w.Diagnostics() {
			say("line %s", line)
		}
		return nil
	})
	inLibraries(t, func(t *testing.T, name string) {
		tool := compiledTool(t, name, foreignStart)
		e := start(t, name, 2, "settings", "LD_PRELOAD="+tool, "COHORT_MPI_EAGER=20480") // nobody finalizes MPI
		e.has(t, "line UCX_RNDV_THRESH=20480 not set, because it was read before: EagerLimit\n")
		e.hasNot(t, "20480: EagerLimit")
		// A tool that loads the library, and UCX if the library is linked to it.
		tool = compiledC(t, mpicc(t, name), "#include <mpi.h>\nvoid *uses = (void *)PMPI_Send;", "along.so", "-shared", "-fPIC")
		before := strings.Contains(runTool(t, "ldd", tool), "libucs.")
		e = start(t, name, 2, "settings", "LD_PRELOAD="+tool, "COHORT_MPI_EAGER=20480").must(t)
		e.has(t, "line UCX_RNDV_THRESH=20480: EagerLimit\n")
		set, late := "line UCX_HANDLE_ERRORS=none: ", "line UCX_HANDLE_ERRORS=none not set, because it was read before: "
		if before {
			set, late = late, set
		}
		e.has(t, set)
		e.hasNot(t, late)
	})
}
