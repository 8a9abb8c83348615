package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// memoryFolder is where the files of a job are while it runs: in memory they show what a rank that was
// killed did last, too.
const memoryFolder = "/dev/shm"

// recordFlight gives the ranks a folder for the files of the flight recorder, in memory where it can be.
// What is to be kept, and where, says keep, or else the environment. end says what the files show if the
// job failed, and puts them where they are kept.
func recordFlight(keep string, keeper *spawn.Keeper) (end func(status int), err error) {
	fail := func(err error) (func(int), error) {
		return nil, fmt.Errorf("the folder of the flight recorder: %w", err)
	}
	if keep == "" {
		keep = os.Getenv(flight.EnvDir)
	}
	if keep != "" {
		if keep, err = filepath.Abs(keep); err == nil {
			err = flight.Check(keep)
		}
		if err != nil {
			return fail(err)
		}
	}
	dir, err := os.MkdirTemp(memoryFolder, "cohort-flight-*")
	temporary := err == nil
	switch {
	case temporary:
		keeper.Folder(dir)
		if keep != "" {
			keeper.Keep(dir, keep)
		}
	case keep != "":
		dir = keep
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
			if err := keepFlight(dir, keep); err != nil {
				fmt.Fprintf(os.Stderr, "cohort: the files of the flight recorder: %v\n", err)
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

// keepFlight copies the files to where they are kept. Those of an earlier job that are there go.
func keepFlight(dir, keep string) error {
	for rank := range spawn.MaxRanks {
		name := flight.FileName(rank)
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			_ = os.Remove(filepath.Join(keep, name))
			continue
		}
		if err := os.WriteFile(filepath.Join(keep, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
