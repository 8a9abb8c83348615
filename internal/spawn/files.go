package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/topo"
)

// Show says whose standard output is shown: that of all ranks, or Only that of Ranks.
type Show struct {
	Only  bool
	Ranks topo.CPUSet // a set of numbers
}

// ParseShow reads a list of ranks such as 0,3-5, or none.
func ParseShow(s string) (Show, error) {
	if s == "none" {
		return Show{Only: true}, nil
	}
	set, err := topo.ParseCPUSet(s)
	if err != nil || len(set) == 0 {
		return Show{}, errors.New("want ranks such as 0,3-5, or none")
	}
	return Show{true, set}, nil
}

// Check returns an error if a job of so many ranks does not have a rank that is shown.
func (s Show) Check(ranks int) error {
	if n := len(s.Ranks); n > 0 && s.Ranks[n-1] >= ranks {
		return fmt.Errorf("--show: rank %d is not in this job of %d", s.Ranks[n-1], ranks)
	}
	return nil
}

// hides reports whether a rank's standard output is not shown.
func (s Show) hides(rank int) bool { return s.Only && !s.Ranks.Contains(rank) }

// Files are the files that get each rank's standard output and error, by rank.
type Files [][2]*os.File

// outputName returns the name of a rank's file: 0 for standard output, 1 for standard error.
func outputName(rank, stream int) string {
	return fmt.Sprintf("rank.%d.%s", rank, [...]string{"out", "err"}[stream])
}

// OpenFiles creates the files of a job in a folder, which it creates too. It removes the files of earlier jobs.
func OpenFiles(folder string, ranks int) (f Files, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("--output: %w", err)
		}
	}()
	if err := shmem.Files(2*ranks, fmt.Sprintf("a file for each stream of %d ranks", ranks)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var rank int
		fmt.Sscanf(e.Name(), "rank.%d.", &rank)
		if name := e.Name(); name == outputName(rank, 0) || name == outputName(rank, 1) {
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return nil, err
			}
		}
	}
	f = make(Files, ranks)
	for rank := range f {
		for stream := range f[rank] {
			file, err := os.Create(filepath.Join(folder, outputName(rank, stream)))
			if err != nil {
				return nil, errors.Join(err, f.close())
			}
			f[rank][stream] = file
		}
	}
	return f, nil
}

// Writer returns the file of a rank's stream: 0 for standard output, 1 for standard error.
func (f Files) Writer(rank, stream int) io.Writer { return f[rank][stream] }

// Conclude closes the files. If a file system reports only now that it has not written all, that is the job's failure unless
// it has failed otherwise.
func (f Files) Conclude(status int, err error) (int, error) {
	if e := f.close(); e != nil && status == 0 {
		return 1, fmt.Errorf("--output: %w", e)
	}
	return status, err
}

func (f Files) close() error {
	var errs []error
	for _, both := range f {
		for _, file := range both {
			if file != nil {
				errs = append(errs, file.Close())
			}
		}
	}
	return errors.Join(errs...)
}
