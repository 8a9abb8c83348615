//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// submit gives a script of docs/slurm to sbatch, with options for this machine, and returns the job
// and its output file.
func submit(t *testing.T, c *cluster, env []string, script string, options ...string) (job, output string) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("..", "..", "..", "docs", "slurm", script))
	if err != nil {
		t.Fatal(err)
	}
	toy, err := filepath.Abs(filepath.Join("..", "..", "..", "sddp", "cases", "toy"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	output = filepath.Join(dir, "output")
	env = append(env, "SDDP="+binary(t, "sddp/cmd/sddp"), "COHORT="+binary(t, "cmd/cohort"), "CASE="+toy)
	args := append([]string{"--parsable", "--chdir=" + dir, "--output=" + output}, options...)
	if c.threads(t) == "1" { // not enough processors
		args = append(args, "--overcommit")
	}
	args = append(append(args, file), toyFlags...)
	return strings.TrimSpace(c.must(t, env, "sbatch", args...)), output
}

// ended waits for the end of a job and returns its state and output.
func (c *cluster) ended(t *testing.T, job, output string) (state, text string) {
	t.Helper()
	until(t, "job "+job, func() bool {
		var s slurmJob
		s.read(t, c.must(t, nil, "scontrol", "--oneliner", "show", "job", job), nil, nil)
		state = s.fields["JobState"]
		return state != "PENDING" && state != "CONFIGURING" && state != "RUNNING" && state != "COMPLETING"
	})
	b, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	return state, string(b)
}

// TestJobScriptsRun submits the job scripts of docs/slurm unchanged, with options for this machine.
func TestJobScriptsRun(t *testing.T) {
	c := slurm(t)
	alone := result(t, c.must(t, nil, binary(t, "sddp/cmd/sddp"), toy...))
	check := func(t *testing.T, c *cluster, ranks int, job, output string, says ...string) {
		t.Helper()
		state, text := c.ended(t, job, output)
		if state != "COMPLETED" {
			t.Fatalf("job %s is %s:\n%s", job, state, text)
		}
		want := alone
		want.Ranks = ranks
		if got := result(t, text); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		for _, s := range says {
			if !strings.Contains(text, s) {
				t.Errorf("no %q in\n%s", s, text)
			}
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(output), "sddp-"+job, "policy.json")); err != nil {
			t.Error(err)
		}
	}
	host, err := os.Hostname() // of which Slurm's n01 is no other spelling
	if err != nil {
		t.Fatal(err)
	}
	t.Run("one-node", func(t *testing.T) {
		job, output := submit(t, c, nil, "one-node.sbatch", "--ntasks=2", "--mem-per-cpu=64")
		check(t, c, 2, job, output, "2 ranks on 1 node: "+host+": 0-1; 1 thread per rank", "Slurm job "+job)
	})
	each(t, func(t *testing.T, c *cluster, l library) {
		env := append([]string{"SLURM_MPI_TYPE=" + l.mpi}, l.env...)
		job, output := submit(t, c, env, "rank-per-numa.sbatch", "--nodes=2", "--cpus-per-task=1")
		check(t, c, 4, job, output, "4 ranks on 2 nodes: n01: 0-1, n02: 2-3; 1 thread per rank pinned", "Slurm job "+job)
		job, output = submit(t, c, env, "rank-per-node.sbatch", "--nodes=2", "--cpus-per-task="+c.threads(t))
		check(t, c, 2, job, output, "2 ranks on 2 nodes: n01: 0, n02: 1; "+c.threads(t)+" thread", "Slurm job "+job)
	})
}

// threads returns 2 if a node has that many processors, else 1.
func (c *cluster) threads(t *testing.T) string {
	t.Helper()
	if cpus := strings.TrimSpace(c.must(t, nil, "sinfo", "--noheader", "--nodes=n01", "--format=%c")); cpus != "1" {
		return "2"
	}
	return "1"
}

// TestInterruptedJobScriptEndsInOrder asks a job's script to end, as Slurm does when the time is
// nearly up: the ranks end in order.
func TestInterruptedJobScriptEndsInOrder(t *testing.T) {
	c := slurm(t)
	// A pipe in place of the case keeps the ranks running, and shows when they have
	// started.
	dir := t.TempDir()
	stay := filepath.Join(dir, "stay")
	text := "#!/bin/sh\ntrap 'echo asked to end; exit 3' TERM\necho staying $$\nwhile :; do sleep 0.1; done\n"
	if err := os.WriteFile(stay, []byte(text), 0o777); err != nil {
		t.Fatal(err)
	}
	job, output := submit(t, c, nil, "one-node.sbatch", "--ntasks=2", "--mem-per-cpu=64", "--export=ALL,SDDP="+stay)
	until(t, "the ranks", func() bool {
		b, _ := os.ReadFile(output)
		return strings.Count(string(b), "staying") == 2
	})
	c.must(t, nil, "scancel", "--batch", "--signal=TERM", job)
	state, text := c.ended(t, job, output)
	if strings.Count(text, "asked to end") != 2 || state == "COMPLETED" {
		t.Errorf("the job is %s:\n%s", state, text)
	}
}
