//go:build unix

package sddp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// limitedEnv makes TestFullDiskLeavesOldFiles write to the folder it names in a process whose files may not
// grow beyond 64 KiB.
const limitedEnv = "SDDP_TEST_WRITE_LIMITED"

// When there is no room for a file, the error names it, existing files are unchanged, and no temporary
// file is left.
func TestFullDiskLeavesOldFiles(t *testing.T) {
	if dir := os.Getenv(limitedEnv); dir != "" {
		signal.Ignore(syscall.SIGXFSZ) // the write then fails, as on a full disk
		limit := func(l syscall.Rlimit) {
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
				t.Fatal(err)
			}
		}
		limit(syscall.Rlimit{Cur: 0, Max: 64 << 10})
		err := cohort.Run(context.Background(), 1, func(w *cohort.Comm) error {
			_, err := OpenOutput(w, dir)
			fmt.Printf("open: %v\n", err)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		limit(syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10})
		err = (&Output{dir}).write(context.Background(), []File{{"small", []byte("new")}, {"large", make([]byte, 1<<20)}})
		fmt.Printf("error: %v\n", err)
		return
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "small"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestFullDiskLeavesOldFiles$")
	cmd.Env = append(os.Environ(), limitedEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "error: write " + filepath.Join(dir, "large"); !strings.Contains(string(out), want) {
		t.Errorf("got %s, want %q in it", out, want)
	}
	if want := "open: output folder " + dir + ": cannot write files there: "; !strings.Contains(string(out), want) {
		t.Errorf("got %s, want %q in it", out, want)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the folder holds %v, want only the old file", got)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "small")); err != nil || string(data) != "old" {
		t.Errorf("small holds %q (%v), want the old content", data, err)
	}
}

// A policy can come from a pipe. Endless input is rejected before it exhausts memory.
func TestPolicyFromPipeIsBounded(t *testing.T) {
	c, p := toyPolicy(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, p.Encode(), 0) }()
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		if got, err := LoadPolicy(world, pipe, c); err != nil || got.Pool.SHA256() != p.Pool.SHA256() {
			return fmt.Errorf("from a pipe: another policy, or %w", err)
		}
		if _, err := LoadPolicy(world, "/dev/zero", c); err == nil || !strings.HasPrefix(err.Error(), "policy /dev/zero: ") {
			return fmt.Errorf("from endless input: got %w", err)
		}
		return nil
	})
	if err := errors.Join(err, <-written); err != nil {
		t.Error(err)
	}
}
