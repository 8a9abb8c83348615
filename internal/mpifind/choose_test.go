package mpifind

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// Environments of ranks, as the launchers set them.
var (
	ofOpenMPI = table{"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_RANK": "3"}
	ofHydra   = table{"PMI_SIZE": "2", "PMI_RANK": "0", "PMI_FD": "6", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2", "HYDI_CONTROL_FD": "7"}
	ofSrun    = table{"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_LOCALID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
)

// with returns the first environment, overridden by the others.
func with(tables ...table) table {
	all := table{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

func TestLaunchedReadsLauncherVariables(t *testing.T) {
	pmi2 := table{"PMI_FD": "9", "PMI_RANK": "2", "PMI_SIZE": "4"}
	for _, c := range []struct {
		name string
		env  table
		want *Launcher
	}{
		{"none", table{"PATH": "/bin"}, nil},
		{"Open MPI", ofOpenMPI, &Launcher{"Open MPI's mpirun", OpenMPI, OpenMPI, 3, 4, "OMPI_COMM_WORLD_SIZE=4"}},
		{"Open MPI in Slurm", with(ofSrun, ofOpenMPI), &Launcher{"Open MPI's mpirun", OpenMPI, OpenMPI, 3, 4, "OMPI_COMM_WORLD_SIZE=4"}},
		{"Open MPI, one rank", table{"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, &Launcher{"Open MPI's mpirun", OpenMPI, OpenMPI, 0, 1, "OMPI_COMM_WORLD_SIZE=1"}},
		{"Hydra", ofHydra, &Launcher{"MPICH's mpiexec", MPICH, MPICH, 0, 2, "PMI_SIZE=2"}},
		{"Hydra in Slurm", with(ofSrun, ofHydra), &Launcher{"MPICH's mpiexec", MPICH, MPICH, 0, 2, "PMI_SIZE=2"}},
		{"Intel", with(ofHydra, table{"I_MPI_HYDRA_TOPOLIB": "hwloc"}), &Launcher{"Intel MPI's mpiexec", MPICH, MPICH, 0, 2, "PMI_SIZE=2"}},
		{"MVAPICH2", table{"MV2_COMM_WORLD_SIZE": "3", "MV2_COMM_WORLD_RANK": "1"}, &Launcher{"MVAPICH2's mpiexec", MPICH, MPICH, 1, 3, "MV2_COMM_WORLD_SIZE=3"}},
		{"some PMI", table{"PMI_SIZE": "3", "PMI_RANK": "1"}, &Launcher{"a PMI launcher", MPICH, MPICH, 1, 3, "PMI_SIZE=3"}},
		{"PMI without a rank", table{"PMI_SIZE": "3"}, nil},
		{"Flux", table{"FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "3", "FLUX_TASK_LOCAL_ID": "1", "PMI_FD": "4"}, &Launcher{"Flux", Unknown, Unknown, 3, 4, "FLUX_JOB_SIZE=4"}},
		{"PALS", table{"PALS_NRANKS": "4", "PALS_RANKID": "2", "PALS_LOCAL_RANKID": "0"}, &Launcher{"Cray PALS", Unknown, MPICH, 2, 4, "PALS_NRANKS=4"}},
		{"srun", ofSrun, &Launcher{"srun", Unknown, Unknown, 2, 4, "SLURM_STEP_NUM_TASKS=4"}},
		{"srun with PMI-2", with(ofSrun, pmi2), &Launcher{"srun --mpi=pmi2", Unknown, MPICH, 2, 4, "SLURM_STEP_NUM_TASKS=4"}},
		{"srun with PMIx", with(ofSrun, table{"PMIX_RANK": "2"}), &Launcher{"srun --mpi=pmix", Unknown, OpenMPI, 2, 4, "SLURM_STEP_NUM_TASKS=4"}},
		{"srun without a count of the step", table{"SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}, &Launcher{"srun", Unknown, Unknown, 1, 2, "SLURM_NTASKS=2"}},
		{"a shell of salloc", table{"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4"}, nil},
		{"a script of sbatch", table{"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, nil},
		{"an interactive step", table{"SLURM_STEP_ID": "4294967290", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, nil},
		{"no number", table{"OMPI_COMM_WORLD_SIZE": "four", "PMI_SIZE": "", "PMI_RANK": "x"}, nil},
		{"negative", table{"OMPI_COMM_WORLD_SIZE": "-4", "OMPI_COMM_WORLD_RANK": "0"}, nil},
		{"huge", table{"OMPI_COMM_WORLD_SIZE": "99999999999999999999", "OMPI_COMM_WORLD_RANK": "0"}, nil},
		{"a rank that is not in the job", table{"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "2"}, nil},
	} {
		got := Launched(c.env.lookup)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestLaunchedUnderInstalledLaunchers checks the variables that this machine's launchers set.
func TestLaunchedUnderInstalledLaunchers(t *testing.T) {
	if text := os.Getenv("TEST_MPIFIND_RANK"); text != "" {
		if l := Launched(os.LookupEnv); l == nil || l.Family.String() != text || l.Size != 1 || l.Rank != 0 {
			t.Errorf("under %s: %+v", text, l)
		}
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for command, family := range map[string]Family{"mpirun.openmpi": OpenMPI, "mpiexec.mpich": MPICH} {
		t.Run(command, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), need.Program(t, command), "-n", "1", exe, "-test.run=^TestLaunchedUnderInstalledLaunchers$")
			cmd.Env = append(os.Environ(), "TEST_MPIFIND_RANK="+family.String(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestChooseFollowsLauncherAndRequest(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mpich := installation(t, dir+"/mpich", likeMPICH, "mpiexec.hydra")
	ompi := installation(t, dir+"/ompi", likeOpenMPI, "orterun")
	standard := installation(t, dir+"/standard", likeStandard)
	text := write(t, dir+"/text/libmpi.so.40", []byte("INPUT(x)"), 0o644)
	both := table{"LD_LIBRARY_PATH": dir + "/ompi/lib:" + dir + "/mpich/lib"}
	// Versions before 5.0 have components for what they can join by.
	likeOld := likeOpenMPI
	likeOld.texts = map[string]string{"ompi_version_string": "Open MPI v4.1.4, package: Open MPI someone@host"}
	old := map[string]string{}
	for kind, components := range map[string][]string{
		"pmix": {"openmpi/mca_pmix_ext3x.so", "openmpi/mca_pmix_isolated.so"}, "pmi2": {"openmpi/mca_pmix_ext3x.so", "openmpi/mca_pmix_s2.so"},
		"debian": {"openmpi/lib/openmpi3/mca_pmix_ext3x.so"}, "static": nil,
	} {
		old[kind] = installation(t, dir+"/"+kind, likeOld, "mpirun")
		for _, c := range components {
			write(t, dir+"/"+kind+"/lib/"+c, nil, 0o644)
		}
	}
	pmi2, pmix := with(ofSrun, table{"PMI_FD": "3"}), with(ofSrun, table{"PMIX_RANK": "2"})
	for _, c := range []struct {
		name          string
		asked, loaded string
		env           table
		first         string // "" for an error
		says          []string
	}{
		{"the first", "", "", both, ompi, nil},
		{"the launcher's", "", "", with(both, ofHydra), mpich, nil},
		{"the launcher's, other", "", "", with(table{"LD_LIBRARY_PATH": dir + "/mpich/lib:" + dir + "/ompi/lib"}, ofOpenMPI), ompi, nil},
		{"what srun's protocol is for", "", "", with(both, pmi2), mpich, nil},
		{"what srun's protocol is for, other", "", "", with(table{"LD_LIBRARY_PATH": dir + "/mpich/lib:" + dir + "/ompi/lib"}, pmix), ompi, nil},
		{"what may join where srun has no protocol", "", "", with(both, ofSrun), mpich, nil},
		{"Open MPI 5 with PMI-2", ompi, "", with(both, pmi2), "", []string{"COHORT_MPI_LIB is Open MPI 5.0.7 (" + ompi + ")", "rank 2 of 4 processes started by srun --mpi=pmi2", "joins only through PMIx; start it with srun --mpi=pmix", dir + "/ompi/bin/orterun"}},
		{"Open MPI 5 without a protocol", "", ompi, with(both, ofSrun), "", []string{"the MPI library in this process is Open MPI 5.0.7", "rank 2 of 4 processes started by srun (", "start it with srun --mpi=pmix"}},
		{"Open MPI 5 with PMIx", ompi, "", with(both, pmix), ompi, nil},
		{"Open MPI 4 with PMI-2", old["pmix"], "", pmi2, "", []string{"Open MPI 4.1.4", "start it with srun --mpi=pmix"}},
		{"Open MPI 4 of Debian with PMI-2", old["debian"], "", pmi2, "", []string{"Open MPI 4.1.4", "start it with srun --mpi=pmix"}},
		{"Open MPI 4 with PMI-2, built for it", old["pmi2"], "", pmi2, old["pmi2"], nil},
		{"Open MPI 4 with PMI-2, perhaps built for it", old["static"], "", pmi2, old["static"], nil},
		{"Open MPI 4 with components elsewhere", old["pmix"], "", with(pmi2, table{"OPAL_PREFIX": "/opt"}), old["pmix"], nil},
		{"a standard library of the launcher's vendor", "", "", with(table{"LD_LIBRARY_PATH": dir + "/standard/lib"}, ofHydra), standard, nil},
		{"asked by path", mpich, "", both, mpich, nil},
		{"asked by name", "libmpi.so.12", "", both, mpich, nil},
		{"asked against the launcher", ompi, "", with(both, ofHydra), "", []string{"COHORT_MPI_LIB is Open MPI 5.0.7 (" + ompi + ")", "one of 2 processes", "MPICH's mpiexec (PMI_SIZE=2)", dir + "/ompi/bin/orterun"}},
		{"asked for, missing", dir + "/none.so", "", both, "", []string{"COHORT_MPI_LIB: " + dir + "/none.so: no such file"}},
		{"asked, no library", text, "", both, "", []string{text + ": not a library"}},
		{"loaded", "", mpich, both, mpich, nil},
		{"loaded and asked", mpich, mpich, both, mpich, nil},
		{"loaded, another asked", ompi, mpich, both, "", []string{ompi, mpich, "can have only one"}},
		{"loaded against the launcher", "", mpich, with(both, ofOpenMPI), "", []string{"MPICH 4.3.1", "Open MPI's mpirun (OMPI_COMM_WORLD_SIZE=4)"}},
	} {
		libs, err := Choose(c.asked, c.env.lookup, c.loaded)
		if c.first != "" {
			if err != nil || len(libs) == 0 || libs[0].Path != c.first {
				t.Errorf("%s: got %v, %v, want %s first", c.name, libs, err, c.first)
			}
			if (c.asked != "" || c.loaded != "") && len(libs) != 1 {
				t.Errorf("%s: got %v, want one choice", c.name, libs)
			}
			continue
		}
		for _, s := range c.says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: got %v, %v, want an error with %q", c.name, libs, err, s)
			}
		}
	}
}

// TestNotFoundNamesFoldersAndLibraries checks that the error has the folders searched, or what was
// found.
func TestNotFoundNamesFoldersAndLibraries(t *testing.T) {
	dir := t.TempDir()
	env := table{"LD_LIBRARY_PATH": dir}
	for _, want := range []string{dir, "apt-get install mpich", "COHORT_MPI_LIB"} {
		if err := NotFound(nil, env.lookup); !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	if err := NotFound([]Library{{Path: "/x/libmpi.so", Problem: "an empty file"}}, env.lookup); !strings.Contains(err.Error(), "/x/libmpi.so (an empty file)") {
		t.Error(err)
	}
}

func TestMpiexecBelongsToLibrary(t *testing.T) {
	dir := t.TempDir()
	mpich := installation(t, dir+"/a/mpich", likeMPICH, "mpiexec.hydra")
	bare := installation(t, dir+"/b", likeMPICH)
	wrong := installation(t, dir+"/c", likeMPICH, "orterun")
	deep := likeOpenMPI.write(t, dir+"/d/lib/triplet/openmpi/lib/libmpi.so.40")
	write(t, dir+"/d/bin/mpirun", []byte("\x7fELF ... prterun ..."), 0o755)
	write(t, dir+"/e/bin/mpiexec", []byte("#!/bin/sh\nexec mpiexec.hydra \"$@\"\n"), 0o755)
	write(t, dir+"/f/bin/mpiexec", []byte("who knows"), 0o755)
	write(t, dir+"/g/bin/mpiexec.hydra", nil, 0o644) // may not be executed
	for _, c := range []struct {
		name, library, path, want string
	}{
		{"its own", mpich, "", dir + "/a/mpich/bin/mpiexec.hydra"},
		{"its own, not PATH's", mpich, dir + "/e/bin", dir + "/a/mpich/bin/mpiexec.hydra"},
		{"a script in PATH", bare, dir + "/e/bin", dir + "/e/bin/mpiexec"},
		{"nobody's", bare, dir + "/f/bin:" + dir + "/g/bin:relative", ""},
		{"another family's", wrong, dir + "/d/bin", ""},
		{"far below", deep, "", dir + "/d/bin/mpirun"},
	} {
		l, err := Examine(c.library)
		if err != nil || l.Problem != "" {
			t.Fatal(l, err)
		}
		got, args, err := mpiexec(l, table{"PATH": c.path}.lookup)
		if real, _ := filepath.EvalSymlinks(dir); strings.Replace(got, real, dir, 1) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
		if err == nil {
			if a := strings.Join(args(3), " "); !strings.HasPrefix(a, "-n 3") {
				t.Errorf("%s: options %s", c.name, a)
			}
		} else if !strings.Contains(err.Error(), "MPICH 4.3.1") || !strings.Contains(err.Error(), "mpiexec.hydra") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestAdviceNamesAnotherWayToStart checks that the advice differs from the way the process was
// started.
func TestAdviceNamesAnotherWayToStart(t *testing.T) {
	for _, c := range []struct {
		env       table
		family    Family
		has, lack string
	}{
		{ofSrun, MPICH, "start it with srun --mpi=pmi2 ", "start it with srun --mpi=pmix "},
		{ofSrun, OpenMPI, "start it with srun --mpi=pmix ", "start it with srun --mpi=pmi2 "},
		{with(ofSrun, table{"PMIX_RANK": "2"}), MPICH, "start it with srun --mpi=pmi2 ", "start it with srun --mpi=pmix "},
		{with(ofSrun, table{"PMI_FD": "2"}), MPICH, "I_MPI_PMI_LIBRARY", "start it with srun"},
		{ofSrun, Standard, "srun --mpi=list", "start it with srun"},
		{table{"FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "3"}, MPICH, "mpiexec of /lib/x", "srun"},
		{ofHydra, MPICH, "COHORT_MPI_LIB", "srun"},
	} {
		got := Launched(c.env.lookup).Advice(c.family, "/lib/x")
		if !strings.Contains(got, c.has) || strings.Contains(got, c.lack) || !strings.Contains(got, "mpiexec of /lib/x") {
			t.Errorf("%v, %v: %q, want %q in it, not %q", c.env, c.family, got, c.has, c.lack)
		}
	}
}
