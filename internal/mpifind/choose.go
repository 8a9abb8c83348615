package mpifind

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Choose returns the libraries to try, in order. asked is COHORT_MPI_LIB, a path or a name; loaded
// is the path of an MPI library that the process has already. Either may be empty. If one is set it
// is the only choice, because a process must not load two libraries. Otherwise the libraries that
// fit the launcher come in the order of [Find], those of its preferred family first. The error
// names what was found, what was expected and what to do.
func Choose(asked string, env func(string) (string, bool), loaded string) ([]Library, error) {
	launcher := Launched(env)
	switch {
	case loaded != "":
		l, err := examine(loaded, env)
		if err != nil {
			return nil, fmt.Errorf("the MPI library in this process: %w", err)
		}
		if asked != "" {
			if a, err := examine(asked, env); err != nil || a.Path != l.Path {
				return nil, fmt.Errorf("COHORT_MPI_LIB is %s, but this process has %v already, and can have only one; unset the variable, or do not load the other", asked, l)
			}
		}
		return only(l, "the MPI library in this process", launcher, env)
	case asked != "":
		l, err := examine(asked, env)
		if err != nil {
			return nil, fmt.Errorf("COHORT_MPI_LIB: %w", err)
		}
		return only(l, "COHORT_MPI_LIB", launcher, env)
	}
	found := Find(env)
	usable := slices.DeleteFunc(slices.Clone(found), func(l Library) bool { return l.Problem != "" })
	if len(usable) == 0 {
		return nil, NotFound(found, env)
	}
	if launcher == nil {
		return usable, nil
	}
	fitting := slices.DeleteFunc(slices.Clone(usable), func(l Library) bool { return !l.Fits(launcher.Family) })
	if len(fitting) == 0 {
		return nil, fmt.Errorf("this process is one of %s started by %v, which needs a library of the %v family; found only %s; "+
			"start it with %s, or install that library", launcher.count(), launcher, launcher.Family, list(usable), commandsOf(usable))
	}
	joining := slices.DeleteFunc(slices.Clone(fitting), func(l Library) bool { return launcher.cannotJoin(l, env) })
	if len(joining) == 0 {
		return nil, fmt.Errorf("found %s, but %s", list(fitting), launcher.refusal(fitting[0]))
	}
	fitting = joining
	slices.SortStableFunc(fitting, func(a, b Library) int { return launcher.unlikely(a) - launcher.unlikely(b) })
	return fitting, nil
}

// unlikely returns 1 for a library that the launcher is probably not for.
func (l *Launcher) unlikely(lib Library) int {
	if lib.Fits(l.Prefer) {
		return 0
	}
	return 1
}

// only returns the only library to choose from, or why it cannot be used.
func only(l Library, what string, launcher *Launcher, env func(string) (string, bool)) ([]Library, error) {
	if l.Problem != "" {
		return nil, fmt.Errorf("%s: %s: %s", what, l.Path, l.Problem)
	}
	if launcher != nil && !l.Fits(launcher.Family) {
		return nil, fmt.Errorf("%s is %v, but this process is one of %s started by %v, which is for the %v family, so each rank would be alone; "+
			"start the program with %s, or use the library of this launcher", what, l, launcher.count(), launcher, launcher.Family, commandsOf([]Library{l}))
	}
	if launcher != nil && launcher.cannotJoin(l, env) {
		return nil, fmt.Errorf("%s is %v, but %s", what, l, launcher.refusal(l))
	}
	return []Library{l}, nil
}

// refusal describes what to do about a library that cannot join.
func (l *Launcher) refusal(lib Library) string {
	return fmt.Sprintf("this is rank %d of %s started by %v, and %s joins only through PMIx; start it with %s, or with %s",
		l.Rank, l.count(), l, lib.Title(), SrunFor(OpenMPI), commandsOf([]Library{lib}))
}

// NotFound returns the error that there is no library to load. found are the libraries that were
// found, each with a Problem.
func NotFound(found []Library, env func(string) (string, bool)) error {
	var b strings.Builder
	b.WriteString("no MPI library on this machine can be loaded: ")
	if len(found) > 0 {
		b.WriteString("found " + list(found))
	} else {
		var folders []string
		for _, p := range searchPlaces(env) {
			folders = append(folders, p.folder)
		}
		b.WriteString("looked for libmpi and libmpich in " + strings.Join(folders, ", "))
	}
	b.WriteString("; install one (apt-get install mpich, dnf install mpich), load its module, or set COHORT_MPI_LIB to its path")
	return errors.New(b.String())
}

// commandsOf returns the launchers of libraries, for an error.
func commandsOf(libs []Library) string {
	var all []string
	for _, l := range libs {
		command, _, err := Mpiexec(l)
		if err != nil {
			command = "the mpiexec of " + l.Title()
		}
		if !slices.Contains(all, command) {
			all = append(all, command)
		}
	}
	return strings.Join(all, " or ")
}
