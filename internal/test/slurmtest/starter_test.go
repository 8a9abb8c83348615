//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCohortRunStartsRanksBySrun runs a job of two programs on both nodes of an allocation, started by srun. The first is not on the nodes'
// paths: srun gets it as ssh does. An SSH_CONNECTION of the user's own login is not what the ranks connect to.
func TestCohortRunStartsRanksBySrun(t *testing.T) {
	c := slurm(t)
	cohort, hello := binary(t, "cmd/cohort"), binary(t, "examples/hello")
	kept := filepath.Join(t.TempDir(), "kept")
	env := []string{"SSH_CONNECTION=192.0.2.1 1 192.0.2.2 22"}
	salloc := []string{"--quiet", "-N", "2", "-n", "4", "--overcommit", cohort, "run", "--starter", "srun", "--output", kept}
	out := c.must(t, env, "salloc", append(salloc, "-n", "1", hello, ":", "-n", "3", "sh", "-c", `exec "$0"`, hello)...)
	if strings.Count(out, " of 4 (backend tcp)") != 4 {
		t.Errorf("want 4 ranks\n%s", out)
	}
	if b, err := os.ReadFile(filepath.Join(kept, "rank.3.out")); err != nil || !strings.Contains(string(b), " of 4 (backend tcp)") {
		t.Errorf("rank 3's file: %q, %v", b, err)
	}
	status, out := c.output(t, env, "salloc", append(salloc, "sh", "-c", `echo $COHORT_RANK on $SLURMD_NODENAME; test $COHORT_RANK != 3 || exit 7; exec sleep 1000`)...)
	if want := "cohort: rank 3 on n02 exited with status 7 after "; status != 7 || !strings.Contains(out, want) || !strings.Contains(out, "[0] 0 on n01\n") {
		t.Errorf("status %d, want 7 and %q\n%s", status, want, out)
	}
	c.must(t, env, "salloc", append(salloc, "--show", "none", "sh", "-c", `head -c 300000 /dev/urandom | tee "$0.$COHORT_RANK"`, kept)...)
	sent, err := os.ReadFile(kept + ".2")
	if got, e := os.ReadFile(filepath.Join(kept, "rank.2.out")); err != nil || e != nil || len(sent) != 300000 || !bytes.Equal(got, sent) {
		t.Errorf("srun changes bytes: %d of %d arrive: %v %v", len(got), len(sent), err, e)
	}
	status, out = c.output(t, env, "salloc", append(salloc, "--hosts", "n09", "-n", "1", hello)...)
	if status != 2 || !strings.Contains(out, "host n09: ") {
		t.Errorf("a host outside the allocation: status %d, want 2 and srun's message\n%s", status, out)
	}
}

// TestKilledSrunLosesItsHost kills the srun that connects the launcher to the second node. Nothing of the job is left.
func TestKilledSrunLosesItsHost(t *testing.T) {
	c := slurm(t)
	real, err := exec.LookPath("srun")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	wrapper := "#!/bin/sh\nfor a; do case $a in --nodelist=*) echo $$ >" + folder + "/${a#*=};; esac; done\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(folder, "srun"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	const rank = `echo $$ >$0/rank.$COHORT_RANK; if test $COHORT_RANK = 0; then until test -s $0/rank.1 -a -s $0/rank.2 -a -s $0/rank.3; do sleep 0.1; done; kill -9 $(cat $0/n02); fi; exec sleep 1000`
	status, out := c.output(t, []string{"PATH=" + folder + ":" + os.Getenv("PATH")}, "salloc", "--quiet", "-N", "2", "-n", "4", "--overcommit",
		binary(t, "cmd/cohort"), "run", "--starter", "srun", "sh", "-c", rank, folder)
	if status != 255 || !strings.Contains(out, "cohort: host n02 was lost after ") || !strings.Contains(out, "ranks 2, 3 with it; ending the others\n") {
		t.Errorf("status %d, want 255 and the lost host\n%s", status, out)
	}
	for _, name := range []string{"rank.0", "rank.1", "rank.2", "rank.3"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(limit); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) { // poll
			if time.Now().After(end) {
				t.Fatalf("%s, process %d, is left", name, pid)
			}
		}
	}
}
