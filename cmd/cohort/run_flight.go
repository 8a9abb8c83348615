package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// envFlight says where ranks leave the files of the flight recorder.
const envFlight = "COHORT_FLIGHT_DIR"

// memoryFolder is where the files of a job are if nobody wants to keep them: in memory they show what
// a rank that was killed did last, too.
const memoryFolder = "/dev/shm"

// recordFlight gives the ranks a folder for the files of the flight recorder: the one asked for, or that
// of the environment, or one that end removes. end says what the files show if the job failed.
func recordFlight(dir string, keeper *spawn.Keeper) (end func(status int), err error) {
	if dir == "" {
		dir = os.Getenv(envFlight)
	}
	remove := func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp(memoryFolder, "cohort-flight-*"); err != nil {
			return func(int) {}, nil // nobody has asked for it
		}
		keeper.Folder(dir)
		temporary := dir
		remove = func() { os.RemoveAll(temporary) }
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = flight.Check(dir)
	}
	if err == nil {
		err = os.Setenv(envFlight, dir) // for the ranks, whoever starts them
	}
	if err != nil {
		remove()
		return nil, fmt.Errorf("the folder of the flight recorder: %w", err)
	}
	return func(status int) {
		defer remove()
		if status == 0 {
			return
		}
		dumps, _, err := flight.Read(dir)
		if err != nil {
			return // the program does not use cohort, or failed before it joined the job
		}
		if f := flight.Analyse(dumps); f.Trouble {
			fmt.Fprintf(os.Stderr, "cohort: %s\n", f.Line)
		}
	}, nil
}
