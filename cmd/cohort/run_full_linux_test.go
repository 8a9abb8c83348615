package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/need"
)

// TestRun_FullDisk has the folder for the flight recorder's files, or /dev/shm, be a full file system of
// 64 KiB: the job does its work, and what could not be kept is said.
func TestRun_FullDisk(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		err = exec.Command(unshare, "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "none", t.TempDir()).Run()
	}
	if err != nil {
		need.MissingRight(t, "a process cannot have a file system of its own here, which takes unshare and root: %v", err)
	}
	hello := buildHello(t)
	for _, c := range []struct {
		backend, full string // which of the two file systems has no room: folder or shm
		says          string
	}{
		{"shm", "folder", "no space left on device"}, {"tcp", "folder", "no space left on device"},
		{"shm", "shm", ""}, {"tcp", "shm", ""},
	} {
		folder := t.TempDir()
		cmd := cohortCommand(t, "run", "-n", "3", "--backend", c.backend, "--bind", "none", "--flight", filepath.Join(folder, "flight"), hello)
		const script = `at=$0; test "$1" = folder || at=/dev/shm; shift
			mount -t tmpfs -o size=64k none "$at" && mkdir -p "$0/flight" || exit 99
			head -c 1000000 /dev/zero > "$at/filler" 2>/dev/null; exec "$@"`
		cmd.Args = append([]string{unshare, "-m", "sh", "-c", script, folder, c.full, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = unshare
		status, stdout, stderr := finish(t, cmd)
		if status != 0 || strings.Count(stdout, " of 3 ") != 3 || !strings.Contains(stderr, c.says) {
			t.Errorf("%s, %s is full: status %d\n%s%s", c.backend, c.full, status, stdout, stderr)
		}
	}
}
