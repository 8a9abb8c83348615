package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// memoryFolder is where the files of a job are while it runs: in memory they show what a rank that was
// killed did last, too.
const memoryFolder = "/dev/shm"

// launchersFolder is how the name of such a folder begins.
const launchersFolder = "cohort-flight-"

// recordFlight gives the ranks a folder for the files of the flight recorder, in memory where it can be.
// What is to be kept, and where, says keep, or else the environment. end says what the files show if the
// job failed, and puts them where they are kept.
func recordFlight(keep string, keeper *spawn.Keeper) (end func(status int), err error) {
	fail := func(err error) (func(int), error) {
		return nil, fmt.Errorf("flight recorder's folder: %w", err)
	}
	if keep == "" {
		keep = askedToKeep()
	}
	if keep != "" {
		if keep, err = filepath.Abs(keep); err == nil {
			err = flight.Check(keep)
		}
		if err != nil {
			return fail(err)
		}
	}
	dir, err := os.MkdirTemp(memoryFolder, launchersFolder+"*")
	temporary := err == nil
	switch {
	case temporary:
		keeper.Folder(dir)
		if keep != "" {
			keeper.Keep(dir, keep)
		}
	case keep != "":
		dir, err = keep, removeFlight(keep)
		if err != nil {
			return fail(err)
		}
	default:
		return func(int) {}, nil // nobody has asked for it
	}
	// For the ranks, whoever starts them.
	if err = os.Setenv(flight.EnvDir, dir); err == nil {
		err = os.Setenv(flight.EnvKept, keep)
	}
	if err != nil {
		return fail(err)
	}
	return func(status int) {
		if status != 0 {
			sayFlight(dir)
		}
		if !temporary {
			return
		}
		if keep != "" {
			if err := keepFlight(dir, keep); err != nil && status != 0 {
				keeper.Leave(dir)
				fmt.Fprintf(os.Stderr, "cohort: writing the flight recorder's files: %v; they stay in %s\n", err, dir)
				return
			} else if err != nil {
				fmt.Fprintf(os.Stderr, "cohort: writing the flight recorder's files: %v\n", err)
			}
		}
		os.RemoveAll(dir)
	}, nil
}

// sayFlight says what the files in a folder show. There are none if the program does not use cohort, or
// failed before it joined the job.
func sayFlight(dir string) {
	dumps, _, err := flight.Read(dir)
	if err != nil {
		return
	}
	if f := flight.Analyse(dumps); f.Trouble {
		fmt.Fprintf(os.Stderr, "cohort: %s\n", f.Line)
	}
}

// askedToKeep returns where the environment says that files are to be kept. In a rank of another job of cohort
// run that is where those of that job are: its own folder is for its own ranks alone.
func askedToKeep() string {
	dir := os.Getenv(flight.EnvDir)
	if kept, ok := os.LookupEnv(flight.EnvKept); ok && strings.HasPrefix(filepath.Base(dir), launchersFolder) {
		return kept
	}
	return dir
}

// keepFlight copies the files to where they are kept. Those of an earlier job that are there go. Where not all
// can be kept none is: those of some of the ranks would say that the others have left no record.
func keepFlight(dir, keep string) error {
	names, err := flightFiles(dir)
	if err == nil {
		err = removeFlight(keep)
	}
	for _, name := range names {
		if err == nil {
			err = copyWhole(filepath.Join(dir, name), filepath.Join(keep, name))
		}
	}
	if err != nil {
		_ = removeFlight(keep)
	}
	return err
}

// copyWhole copies a file, which is then there as a whole or not at all.
func copyWhole(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	part := filepath.Join(filepath.Dir(to), "."+filepath.Base(to)+".part")
	if err = os.WriteFile(part, b, 0o600); err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		os.Remove(part)
	}
	return err
}

// removeFlight removes the files of a job's ranks from a folder.
func removeFlight(dir string) error {
	names, err := flightFiles(dir)
	for _, name := range names {
		if e := os.Remove(filepath.Join(dir, name)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// flightFiles returns the names of the files that a job's ranks have left in a folder.
func flightFiles(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		var rank int
		if _, err := fmt.Sscanf(e.Name(), "rank-%d.", &rank); err == nil && e.Name() == flight.FileName(rank) {
			names = append(names, e.Name())
		}
	}
	return names, err
}
