//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/topo"
)

// programs are the programs that this binary can be in a job; they return their status.
var programs = map[string]func() int{"facts": printFacts, "stay": stay, "die": die, "holder": holder}

// facts are what a rank knows of its place.
type facts struct {
	Rank, Size int
	Topology   cohort.Topology
	Job        topo.Job
	Problems   []string
	Text       string // of the topology
	Conf       string // SLURM_CONF, to see that this is the right Slurm
}

func joined(body func(world *cohort.Comm) error) int {
	world, err := cohort.Init(context.Background(), nil)
	if err == nil {
		err = body(world)
	}
	if err == nil {
		err = world.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// printFacts prints the facts as a line of JSON.
func printFacts() int {
	return joined(func(world *cohort.Comm) error {
		f := facts{Rank: world.Rank(), Size: world.Size(), Topology: world.Topology(), Job: *topo.ThisJob(), Conf: os.Getenv("SLURM_CONF")}
		for _, p := range f.Job.Problems {
			f.Problems = append(f.Problems, p.Error())
		}
		f.Job.Problems, f.Text = nil, f.Topology.String()
		line, err := json.Marshal(f)
		if err == nil {
			fmt.Printf("%s\n", line)
		}
		return err
	})
}

// stay prints its process id and waits for a message that nobody sends. It ignores signals to end.
func stay() int {
	return joined(func(world *cohort.Comm) error {
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		if err := world.Barrier(); err != nil {
			return err
		}
		fmt.Printf("staying %d\n", os.Getpid())
		_, err := cohort.Recv(world, make([]int, 1), (world.Rank()+1)%world.Size(), 1)
		return err
	})
}

// die is stay, but rank 1 is killed.
func die() int {
	return joined(func(world *cohort.Comm) error {
		fmt.Printf("staying %d\n", os.Getpid())
		if err := world.Barrier(); err != nil {
			return err
		}
		if world.Rank() == 1 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
		}
		_, err := cohort.Recv(world, make([]int, 1), (world.Rank()+1)%world.Size(), 1)
		return err
	})
}

// factsOf reads what the ranks of a job printed under srun --label.
func factsOf(t *testing.T, out string, tasks int) map[int]facts {
	t.Helper()
	all := make(map[int]facts)
	for task, text := range labeled(t, out) {
		var f facts
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatalf("task %d printed %q: %v", task, text, err)
		}
		if f.Rank != task {
			t.Errorf("task %d is rank %d", task, f.Rank)
		}
		all[task] = f
	}
	if len(all) != tasks {
		t.Fatalf("%d of %d tasks printed something:\n%s", len(all), tasks, out)
	}
	return all
}

// labeled reads the lines of srun --label, one for each task.
func labeled(t *testing.T, out string) map[int]string {
	t.Helper()
	all := make(map[int]string)
	for line := range strings.Lines(out) {
		label, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var task int
		if _, err := fmt.Sscanf(label, "%d", &task); err != nil || all[task] != "" {
			t.Fatalf("the line %q of\n%s", line, out)
		}
		all[task] = text
	}
	return all
}
