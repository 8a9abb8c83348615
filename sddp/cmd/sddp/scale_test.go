//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A training goes on with more or fewer ranks when the job is to have another size, and gives the same bits.
func TestTrainingTakesAnotherSize(t *testing.T) {
	tool := cohortTool(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to int }{{3, 1}, {2, 4}} {
		if testing.Short() && c.to > c.from {
			continue // the training lasts longer; make test-all runs it
		}
		ranks := 0
		for iterations := 25; ranks != c.to; iterations *= 4 { // until it lasts longer than the start of processes
			if iterations > 2000 {
				t.Fatalf("from %d ranks to %d: the training ends with %d", c.from, c.to, ranks)
			}
			args := with(checkpointArgs, "--iterations", strconv.Itoa(iterations))
			cmd := exec.Command(tool, with([]string{"run", "--elastic", "1:4", "--tag=false", "-n", strconv.Itoa(c.from), exe}, args...)...)
			cmd.Env = append(os.Environ(), asCommand+"=1")
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			pipe, err := cmd.StderrPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			job, said := "", ""
			for lines := bufio.NewScanner(pipe); lines.Scan(); {
				said += lines.Text() + "\n"
				if m := regexp.MustCompile(`'cohort scale (\S+) N'`).FindStringSubmatch(lines.Text()); m != nil {
					job = m[1]
				}
				if job != "" && iterationLine.MatchString(lines.Text()) {
					if out, err := exec.Command(tool, "scale", job, strconv.Itoa(c.to)).CombinedOutput(); err != nil {
						said += fmt.Sprintf("%s%v\n", out, err) // the job may be over
					}
					job = ""
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("from %d ranks to %d: %v\n%s", c.from, c.to, err, said)
			}
			got, want := lastLine(t, stdout.String()), checkpointResult(t, args)
			ranks = got.Ranks
			got.Seconds, got.Ranks = want.Seconds, want.Ranks
			if got != want || strings.Contains(said, "sddp: rank") || strings.Contains(said, "lost") {
				t.Errorf("from %d ranks to %d: %+v, want %+v\n%s", c.from, c.to, got, want, said)
			}
		}
	}
}
