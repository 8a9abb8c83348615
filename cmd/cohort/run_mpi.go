package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// rankCommand is the command with which an MPI launcher runs this program to become a rank.
const rankCommand = "mpi-rank"

// becomeRank turns this process into a rank of the cohort run at address. It
// returns only when that fails, with the status.
func becomeRank(address string) int {
	err := errors.New("this command is for the MPI launchers that cohort run starts")
	if l := mpifind.Launched(os.LookupEnv); l != nil && l.Rank >= 0 {
		err = spawn.Become(address, l.Rank, l.Size)
	}
	fmt.Fprintln(os.Stderr, "cohort:", err)
	return cli.StatusUsage
}

// libraries returns the MPI libraries that were found. If COHORT_MPI_LIB names one, that comes first, and asked is set. The
// error says that it cannot be used.
func libraries(env func(string) (string, bool)) (found []mpifind.Library, asked bool, err error) {
	found = mpifind.Find(env)
	path, _ := env("COHORT_MPI_LIB")
	if path == "" {
		return found, false, nil
	}
	lib, err := mpifind.Examine(path)
	if err == nil && lib.Problem != "" {
		err = fmt.Errorf("%s: %s", lib.Path, lib.Problem)
	}
	found = slices.DeleteFunc(found, func(o mpifind.Library) bool { return o.Path == lib.Path })
	return slices.Insert(found, 0, lib), true, err
}

// libraryToRun returns the library that ranks will load and its launcher: the one
// that COHORT_MPI_LIB asks for, else the first that has a launcher.
func libraryToRun(env func(string) (string, bool)) (lib mpifind.Library, command string, args func(int) []string, err error) {
	found, asked, err := libraries(env)
	if err != nil {
		return lib, "", nil, fmt.Errorf("COHORT_MPI_LIB: %w", err)
	}
	var first error
	for _, lib := range found {
		if lib.Problem != "" {
			continue
		}
		command, args, err := mpifind.Mpiexec(lib)
		if err == nil || asked {
			return lib, command, args, err
		}
		first = cmp.Or(first, err)
	}
	if first != nil {
		return lib, "", nil, first
	}
	return lib, "", nil, mpifind.NotFound(found, env)
}

// How many descriptors a launcher opens, and for each rank: by the least limit with which a job works, of 1 to
// 8 ranks. That is 27 and 4 for each with Open MPI 4.1.4, whose mpirun hangs with fewer, and with MPICH 4.0.2
// no more. Three of them are input and output, which are there.
const (
	launcherFiles     = 24
	launcherFilesEach = 4
)

// mpiLaunch returns how an MPI launcher starts the ranks of a job. remove removes the files that the launcher may leave.
func mpiLaunch(ranks int, keeper *spawn.Keeper) (launch *spawn.Launch, remove func(), err error) {
	lib, command, args, err := libraryToRun(os.LookupEnv)
	if err != nil {
		return nil, nil, fmt.Errorf("--backend mpi: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	launch = &spawn.Launch{
		Name: filepath.Base(command), Command: command, Args: args(ranks), Rank: []string{exe, rankCommand},
		Env: []string{"COHORT_MPI_LIB=" + lib.Path}, Descriptors: launcherFiles + launcherFilesEach*ranks,
	}
	set := func(name, value string) {
		if _, there := os.LookupEnv(name); !there {
			launch.Env = append(launch.Env, name+"="+value)
		}
	}
	remove = func() {}
	switch lib.Runtime {
	case mpifind.MPICH:
		// On this machine, also in a batch job of several.
		set("HYDRA_LAUNCHER", "fork")
		set("HYDRA_RMK", "user")
	case mpifind.OpenMPI:
		launch.Args = append(launch.Args, "--bind-to", "none") // each rank is bound before its program starts
		if os.Geteuid() == 0 {
			set("OMPI_ALLOW_RUN_AS_ROOT", "1")
			set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
			set("PRTE_ALLOW_RUN_AS_ROOT", "1")
			set("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
		}
		remove = ownFolders(set, keeper)
	}
	return launch, remove, nil
}

// ownFolders has Open MPI put the files of a job's session and of its shared
// memory in folders of this job, because it leaves them behind when it is killed.
func ownFolders(set func(name, value string), keeper *spawn.Keeper) (remove func()) {
	var folders []string
	for _, f := range []struct {
		in        string
		variables []string
	}{
		{os.TempDir(), []string{"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"}},
		{"/dev/shm", []string{
			"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory",
			"OMPI_MCA_osc_sm_backing_directory", "OMPI_MCA_osc_rdma_backing_directory",
		}},
	} {
		folder, err := os.MkdirTemp(f.in, "cohort-run-*")
		if err != nil {
			continue // the launcher then uses its default folders
		}
		keeper.Folder(folder)
		folders = append(folders, folder)
		for _, v := range f.variables {
			set(v, folder)
		}
	}
	return func() {
		for _, f := range folders {
			os.RemoveAll(f)
		}
	}
}
