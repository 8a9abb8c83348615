package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// jobFolder is the beginning of the path of a job's folder, which the job's name completes.
func jobFolder() string { return filepath.Join(os.TempDir(), "cohort-run-") }

func newScale() *cobra.Command {
	return &cobra.Command{
		Use:   "scale JOB N",
		Short: "Give a running job another number of ranks",
		Long: `
Ask a job of 'cohort run --elastic' to have N ranks. JOB is the name that it
prints when it starts.

The command does not wait until the job has another size. The ranks learn by
Comm.Resized that it is to have one, and take it when they call cohort.Rejoin.
If the job is to grow, new processes are started at once, and the others learn
of it when these are ready. If it is to shrink, the ranks from N on leave it.

The job must run on this machine, and be started with the same TMPDIR.`,
		Example: `
  cohort run -n 4 --elastic 2:8 ./a.out
  cohort scale 3141592653 6`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.Usagef("want JOB and N, its new number of ranks")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return scale(args[0], args[1]) },
	}
}

func scale(name, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > spawn.MaxRanks {
		return cli.Usagef("N %s: want a whole number from 1 to %d", text, spawn.MaxRanks)
	}
	switch err := spawn.Scale(jobFolder()+name, n); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("job %s: not found; the jobs of 'cohort run --elastic' are the folders %s*", name, jobFolder())
	case err != nil:
		return fmt.Errorf("job %s: %w", name, err)
	}
	_, err = fmt.Printf("job %s is asked to have %d ranks\n", name, n)
	return err
}
