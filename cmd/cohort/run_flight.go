package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// memoryFolder holds the files of a job while it runs. Because it is in memory, the files also show what a
// killed rank did last.
const memoryFolder = "/dev/shm"

// launchersFolder is the prefix of the names of these folders.
const launchersFolder = "cohort-flight-"

// recordFlight gives the ranks a folder for the files of the flight recorder, in memory if possible. keep
// is the folder in which the files are kept; if it is empty, the environment may name one. With stats the ranks count their
// operations. end prints what the files show if the job failed, and the counts, and moves the files to the folder in which
// they are kept. Where the ranks have not been started, end changes nothing there. aborted means that a message has reported an
// Abort already: end does not print it again.
func recordFlight(keep string, stats, hosts bool, keeper *spawn.Keeper) (end func(started bool, status int, aborted bool), err error) {
	fail := func(err error) (func(bool, int, bool), error) {
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
	file := os.Getenv(flight.EnvStats)
	if stats {
		err = os.Setenv(flight.EnvStats, flight.CountOnly)
	} else {
		err = os.Unsetenv(flight.EnvStats) // else the ranks write the file, or try to on their hosts
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(memoryFolder, launchersFolder+"*")
	if err != nil {
		dir, err = os.MkdirTemp("", launchersFolder+"*")
	}
	switch {
	case err == nil:
	case keep != "" || stats:
		return fail(err)
	default:
		return func(bool, int, bool) {}, nil // not requested, and no place for the files
	}
	keeper.Folder(dir)
	if !hosts { // these send their files at the end: before that, only some may be there
		keeper.Keep(dir, keep)
	}
	// In this process's environment: all ranks inherit it, also those that another launcher starts.
	if err = os.Setenv(flight.EnvDir, dir); err == nil {
		err = os.Setenv(flight.EnvKept, keep)
	}
	if err != nil {
		return fail(err)
	}
	return func(started bool, status int, aborted bool) {
		var err error
		if started {
			if status != 0 {
				printFlight(dir, aborted)
			}
			if stats {
				writeStats(dir, file)
			}
			if keep != "" {
				keeper.Keep(dir, keep)
				if err = flight.Clear(keep); err == nil { // even if the ranks have left no files
					err = flight.Keep(dir, keep)
				}
			}
		}
		if err != nil {
			keeper.Leave(dir)
			fmt.Fprintf(os.Stderr, "cohort: writing the flight recorder's files: %v; they stay in %s\n", err, dir)
			return
		}
		keeper.Keep(dir, "") // else it would copy what has not been removed
		os.RemoveAll(dir)
	}, nil
}

// printFlight prints what the files in a folder show. There are none if the program does not use cohort, or
// failed before it joined the job.
func printFlight(dir string, aborted bool) {
	dumps, _, err := flight.Read(dir)
	if err != nil {
		return
	}
	if f := flight.Analyze(dumps); f.Trouble && !(f.Aborted && aborted) {
		fmt.Fprintf(os.Stderr, "cohort: %s\n", f.Line)
	}
}

// writeStats writes where the time of a job went to the file that the environment names, or prints it.
func writeStats(dir, file string) {
	dumps, _, err := flight.Read(dir)
	var s *flight.Summary
	if err == nil {
		s, err = flight.Summarize(dumps)
	}
	toFile := file != "" && file != flight.CountOnly
	if err == nil && toFile {
		err = s.WriteFile(file)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cohort: no statistics: %v\n", err)
	} else if !toFile {
		fmt.Fprint(os.Stderr, "cohort: ")
		_ = s.Write(os.Stderr)
	}
}

// askedToKeep returns the folder in which, by the environment, files are kept. In a rank of another cohort run
// it is the folder in which that job's files are kept: COHORT_FLIGHT_DIR then is for that job's ranks alone.
func askedToKeep() string {
	dir := os.Getenv(flight.EnvDir)
	if kept, ok := os.LookupEnv(flight.EnvKept); ok && strings.HasPrefix(filepath.Base(dir), launchersFolder) {
		return kept
	}
	return dir
}
