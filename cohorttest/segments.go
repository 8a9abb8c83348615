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
// number that Open MPI has given it, and, for names that chance makes, as MPICH's are, those that are mapped now. What
// the job maps later and leaves has no mark of it: see left.
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
// pattern of known it returns apart, and with them what fits one, has no mark, and is used by no process: whose it was
// cannot be told. All are removed.
func (s segments) left(marks, known []string) (left, expected []string) {
	var unmarked []string
	for _, name := range fileNames(s.dir) {
		own := slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(name, m) })
		fits := slices.ContainsFunc(known, func(p string) bool { ok, _ := path.Match(p, name); return ok })
		switch {
		case slices.Contains(s.before, name):
		case own && fits:
			expected = append(expected, name)
		case own:
			left = append(left, name)
		case fits:
			unmarked = append(unmarked, name)
		}
	}
	expected = append(expected, unused(unmarked)...)
	for _, name := range slices.Concat(left, expected) {
		_ = os.Remove(filepath.Join(s.dir, name)) // it is an error already, or known
	}
	return left, expected
}

// unused returns those of the names, of files that are there, that no process has open or mapped, and none where that
// is not to be seen.
func unused(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	used := make(map[string]bool)
	// The descriptors come first: who makes a file maps it before closing it.
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, d := range descriptors {
		if to, err := os.Readlink(d); err == nil { // it may be closed, or another user's
			used[path.Base(to)] = true
		}
	}
	maps, _ := filepath.Glob("/proc/[0-9]*/maps")
	if len(maps) == 0 {
		return nil
	}
	for _, m := range maps {
		text, _ := os.ReadFile(m) // its process may have ended
		for line := range strings.Lines(string(text)) {
			used[path.Base(strings.TrimSpace(line))] = true
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return used[n] })
}
