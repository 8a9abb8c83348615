package mpifind

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Choose returns the libraries to try, in order. asked is COHORT_MPI_LIB, a path
// or a name; loaded the path of an MPI library that is in the process already;
// either may be empty. With one of them there is one choice only, because a
// process must not load two. Else those that the launcher fits come in the order
// of [Find], the ones it is likely meant for first. The error names what was
// found, what was expected and what to do.
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
				return nil, fmt.Errorf("COHORT_MPI_LIB asks for %s, but %v is in this process already, and two cannot be", asked, l)
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

// unlikely is 1 for a library of which the launcher is probably not.
func (l *Launcher) unlikely(lib Library) int {
	if lib.Fits(l.Prefer) {
		return 0
	}
	return 1
}

// only returns the one library there is a choice of, or why it cannot be.
func only(l Library, who string, launcher *Launcher, env func(string) (string, bool)) ([]Library, error) {
	if l.Problem != "" {
		return nil, fmt.Errorf("%s: %s: %s", who, l.Path, l.Problem)
	}
	if launcher != nil && !l.Fits(launcher.Family) {
		return nil, fmt.Errorf("%s is %v, but this process is one of %s started by %v, which is for the %v family: each would be a world of its own; "+
			"start the program with %s, or take the library of this launcher", who, l, launcher.count(), launcher, launcher.Family, commandsOf([]Library{l}))
	}
	if launcher != nil && launcher.cannotJoin(l, env) {
		return nil, fmt.Errorf("%s is %v, but %s", who, l, launcher.refusal(l))
	}
	return []Library{l}, nil
}

// refusal says of a library that cannot join what to do.
func (l *Launcher) refusal(lib Library) string {
	return fmt.Sprintf("this is rank %d of %s started by %v, and %s joins by PMIx alone: start it with %s, or with %s",
		l.Rank, l.count(), l, lib.Title(), SrunFor(OpenMPI), commandsOf([]Library{lib}))
}

// NotFound returns the error that says that there is no library to load; found is
// what has been found, all of it with a Problem.
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

// commandsOf names the launchers of libraries, for an error.
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
