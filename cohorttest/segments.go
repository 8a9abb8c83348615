package cohorttest

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sharedFolder is where libraries put files of memory that ranks share. Backends of cohort's own put none there.
const sharedFolder = "/dev/shm"

// marks returns what the names of files of shared memory have in them that this rank's job makes: the job's name, the
// number that Open MPI has given it, and, for names that chance makes, as MPICH's are, those that are mapped now.
func marks() (all []string) {
	if job := os.Getenv("COHORT_JOB"); job != "" {
		all = append(all, job)
	}
	if job := os.Getenv("PMIX_NAMESPACE"); job != "" {
		if n, err := strconv.ParseUint(job, 10, 32); err == nil {
			job = "." + strconv.FormatUint(n, 16) + "."
		}
		all = append(all, job)
	}
	for line := range strings.Lines(mappings()) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), sharedFolder+"/"); ok {
			all = append(all, strings.TrimSuffix(name, " (deleted)"))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// segments are the files that a folder had at a time.
type segments struct {
	dir    string
	before []string
}

func segmentsIn(dir string) segments { return segments{dir, fileNames(dir)} }

func fileNames(dir string) (names []string) {
	list, _ := os.ReadDir(dir) // other systems have no such folder
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// left returns the files that have come since and have one of the marks of a job, which has ended. Those that fit a
// pattern of known it returns apart. All are removed.
func (s segments) left(marks, known []string) (left, expected []string) {
	for _, name := range fileNames(s.dir) {
		own := func(m string) bool { return strings.Contains(name, m) }
		fits := func(p string) bool { ok, _ := path.Match(p, name); return ok }
		switch {
		case slices.Contains(s.before, name) || !slices.ContainsFunc(marks, own):
			continue
		case slices.ContainsFunc(known, fits):
			expected = append(expected, name)
		default:
			left = append(left, name)
		}
		_ = os.Remove(filepath.Join(s.dir, name)) // it is an error already, or known
	}
	return left, expected
}
