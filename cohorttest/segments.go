package cohorttest

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sharedFolder is where libraries put files of shared memory. cohort's own backends put
// none there.
const sharedFolder = "/dev/shm"

// marks returns strings that the names of this job's shared-memory files contain: the
// job's name, the number that Open MPI has given it, and the names of the files that are
// mapped now, because MPICH's names are random. Files that the job maps later have no
// mark; see left.
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

// segments has the files that a folder had at some time.
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

// left returns the files that have appeared since and have one of the marks of a job that
// has ended. Those that match a pattern of known are returned in expected, together with
// files that match one, have no mark, and are used by no process. All of them are removed.
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
		_ = os.Remove(filepath.Join(s.dir, name)) // they are reported in any case
	}
	return left, expected
}

// unused returns the names of files that no process has open or mapped, or none if the
// system does not report that.
func unused(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	used := make(map[string]bool)
	// The descriptors come first: a process maps a file before it closes it.
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
