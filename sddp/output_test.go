package sddp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// writerEnv makes this test binary write files repeatedly to the folder it names.
const writerEnv = "SDDP_TEST_WRITE_FOREVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

// block returns the n-th content of a file. Its length shows whether it is complete.
func block(n int) []byte {
	return append(bytes.Repeat([]byte(strconv.Itoa(n%10)), 300000+n), '.')
}

// writeForever writes new contents of two files until it is killed, and a line before each.
func writeForever(dir string) {
	o := &Output{dir}
	for n := 0; ; n++ {
		fmt.Println(n)
		if err := o.write(context.Background(), []File{{"a", block(n)}, {"b", block(n)}}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

func TestKilledWriterLeavesWholeFiles(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		dir := t.TempDir()
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), writerEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for range 2 + round {
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer exited")
		}
		for _, name := range []string{"a", "b"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatalf("round %d: after a full round: %v", round, err)
			}
			if n := len(data) - 300001; n < 0 || !bytes.Equal(data, block(n)) {
				t.Errorf("round %d: %s holds %d bytes, which is not a complete file", round, name, len(data))
			}
		}
	}
}

// names returns the names in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestInterruptedWriteLeavesOldFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := (&Output{dir}).write(ctx, []File{{"a", []byte("new")}, {"b", []byte("new")}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the interruption", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "old" {
		t.Errorf("a holds %q (%v), want the old content", data, err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the folder holds %v, want a alone", got)
	}
}

func TestFailedWriteNamesFileAndLeavesNoTemporaries(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "b", "in the way"), 0o777); err != nil {
		t.Fatal(err)
	}
	err := (&Output{dir}).write(context.Background(), []File{{"a", []byte("x")}, {"b", []byte("x")}, {"c", []byte("x")}})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "b")) {
		t.Errorf("got %v, want an error that names b", err)
	}
	if got := strings.Join(names(t, dir), " "); got != "a b" {
		t.Errorf("the folder holds %q, want a and the folder b", got)
	}
}

func TestUnwritableFolderFailsOnAllRanks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		for _, bad := range []string{file, filepath.Join(file, "below")} {
			if _, err := OpenOutput(world, bad); err == nil || !strings.Contains(err.Error(), bad) {
				return fmt.Errorf("rank %d: %s: got %v, want an error that names it", world.Rank(), bad, err)
			}
		}
		o, err := OpenOutput(world, filepath.Join(dir, "new", "folder"))
		if err != nil {
			return err
		}
		return o.Write(context.Background(), world, []File{{"a", []byte("x")}})
	})
	if err != nil {
		t.Error(err)
	}
	if got := names(t, filepath.Join(dir, "new", "folder")); len(got) != 1 || got[0] != "a" {
		t.Errorf("the new folder holds %v, want a alone", got)
	}
}
