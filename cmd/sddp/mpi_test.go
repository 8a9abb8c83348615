//go:build cgo && linux && !cohort_nompi

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpitest"
)

// Under the launcher of every MPI library, and started by cohort run over it, the training gives
// what a single rank does: the bits of the cuts and of the bounds.
func TestTrainOverMPI(t *testing.T) {
	args := append([]string{"train", caseDir("brazil4"), "--json"}, strings.Fields("--iterations 5 --passes 4 --openings 5 --scenarios 50")...)
	status, out, errs := sddpRun(t, args...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	want := lastLine(t, out)
	if want.Iterations != 5 || want.Cuts != 5*4*11 || want.Ranks != 1 {
		t.Fatalf("one rank alone: %+v", want)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(t.TempDir(), "cohort")
	if out, err := exec.Command("go", "build", "-o", tool, "../cohort").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		for n := 1; n <= 4; n++ {
			byCohort := exec.Command(tool, append([]string{"run", "--backend", "mpi", "--tag=false", "-n", strconv.Itoa(n), exe}, args...)...)
			byCohort.Env = append(os.Environ(), "COHORT_MPI_LIB="+l.Library.Path)
			for _, cmd := range []*exec.Cmd{l.Command(n, append([]string{exe}, args...)...), byCohort} {
				cmd.Env = append(cmd.Env, asCommand+"=1")
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %v\n%s%s", cmd, err, &out, &errs)
				}
				got := lastLine(t, out.String())
				want.Ranks, want.Seconds = n, got.Seconds
				if got != want {
					t.Errorf("%v: %+v, want %+v", cmd, got, want)
				}
			}
		}
	})
}
