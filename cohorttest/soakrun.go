package cohorttest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// faultRun does one run. It returns how long the survivors took to notice the loss, and how
// long after their deadlines operations ended.
func faultRun(t *testing.T, l Launcher, seed uint64, dir string) (noticed, kept []time.Duration) {
	p := planOf(seed)
	t.Logf("%d ranks, %d operations, rank %d %s at %d, after %v", p.ranks, p.steps, p.victim, p.kind, p.at, p.delay)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	job := &Job{Ranks: p.ranks, Scenarios: []string{randomFault}, Seed: seed, Dir: dir, Patience: faultPatience}
	// If even the ranks' watchdogs do not act, the job is killed, so that its launcher ends.
	stuck := time.AfterFunc(3*faultPatience, func() {
		t.Errorf("the job did not end; killed: %v", killJob(dir))
	})
	shared := fileNames(sharedFolder)
	launchErr := l.Launch(t, job)
	stuck.Stop()
	if left := killJob(dir); len(left) > 0 {
		t.Errorf("processes were left and have been killed: %v", left)
	}
	ranks, err := job.reports()
	if err != nil {
		t.Fatal(err)
	}
	m, mpi := l.(Mpiexec)
	if p.ends() {
		removeUnused(sharedFolder, shared, m.Leaves)
	}
	switch {
	case mpi && p.ends(): // the launcher ended the job
		for rank, r := range ranks {
			for _, e := range r[randomFault].Errs {
				t.Errorf("rank %d: %s", rank, e)
			}
		}
	default:
		judge(t, faultScenario(p), ranks)
	}
	switch {
	case launchErr == nil && p.mortal() && !m.LosesStatus:
		t.Error("the launcher reports no error for a job that lost a rank")
	case launchErr != nil && !p.mortal() && !(mpi && p.ends()):
		t.Error(launchErr)
	case launchErr != nil && !mpi:
		for _, e := range unjoin(launchErr) {
			if !strings.HasPrefix(e.Error(), fmt.Sprintf("rank %d: ", p.victim)) {
				t.Error(e)
			}
		}
	}
	if t.Failed() && launchErr != nil {
		t.Logf("the launcher: %v", launchErr)
	}
	for _, r := range ranks {
		if late := r[randomFault].Late; late > 0 {
			kept = append(kept, time.Duration(late)*time.Microsecond)
		}
	}
	struck, err := os.ReadFile(filepath.Join(dir, "struck"))
	if err != nil || p.kind == fails || p.kind == leaves {
		return nil, kept
	}
	begun, err := strconv.ParseInt(string(struck), 10, 64)
	if err != nil {
		return nil, kept // killed while it wrote that
	}
	for _, r := range ranks {
		if at := r[randomFault].Noticed; at > begun {
			noticed = append(noticed, time.Duration(at-begun)*time.Microsecond)
		}
	}
	return noticed, kept
}

// unjoin returns the errors that errors.Join has joined, or none for nil.
func unjoin(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// killJob waits for the processes of a job to end, for a limited time, and kills those
// that are left. It finds them by the folder in their environment, and returns their ids.
func killJob(dir string) (left []string) {
	for begun := time.Now(); ; runtime.Gosched() {
		left = left[:0]
		found, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, f := range found {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			env, err := os.ReadFile(f)
			if err != nil || pid == os.Getpid() || !strings.Contains(string(env), jobVariable+"=") || !strings.Contains(string(env), dir) {
				continue
			}
			left = append(left, strconv.Itoa(pid))
		}
		if len(left) == 0 || time.Since(begun) > late {
			break
		}
	}
	for _, text := range left {
		pid, _ := strconv.Atoi(text)
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended
		}
	}
	return left
}

// sharedFolder is where libraries put files of shared memory. cohort's own backends put
// none there.
const sharedFolder = "/dev/shm"

func fileNames(dir string) (names []string) {
	list, _ := os.ReadDir(dir) // other systems have no such folder
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// removeUnused removes the files that have appeared in a folder, match a pattern, and are used by no process.
func removeUnused(dir string, before, patterns []string) {
	left := slices.DeleteFunc(fileNames(dir), func(name string) bool {
		return slices.Contains(before, name) || !slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok })
	})
	for _, name := range unused(left) {
		_ = os.Remove(filepath.Join(dir, name)) // another test may have removed it
	}
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
