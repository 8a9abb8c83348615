package main

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// BenchmarkSplits compares how long a training with 32 forward passes per iteration takes on one
// thread, on two ranks (processes, over shm), and on two threads of one rank:
//
//	go test -run '^$' -bench Splits -benchtime 7x ./sddp/cmd/sddp
//
// The three alternate, so that other load on the machine affects all of them. Each figure is the median of
// the rounds: elapsed seconds without process start, CPU seconds of all processes, and elapsed seconds
// relative to one thread.
func BenchmarkSplits(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	tool := cohortTool(b)
	args := append([]string{exe, "train", caseDir("brazil4"), "--json"},
		strings.Fields("--passes 32 --iterations 12 --scenarios 2 --pin none")...)
	ways := []struct {
		name    string
		command []string
	}{
		{"1x1", append(args[:len(args):len(args)], "--threads", "1")},
		{"2x1", append([]string{tool, "run", "-n", "2", "--backend", "shm", "--bind", "none", "--tag=false"}, append(args, "--threads", "1")...)},
		{"1x2", append(args[:len(args):len(args)], "--threads", "2")},
	}
	clock, processor, share := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	hash := ""
	turn := 0
	for b.Loop() {
		for i := range ways {
			way := ways[(turn+i)%len(ways)]
			cmd := exec.Command(way.command[0], way.command[1:]...)
			cmd.Env = append(os.Environ(), asCommand+"=1")
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil {
				b.Fatalf("%v: %v\n%s", cmd, err, &errs)
			}
			r := lastLine(b, out.String())
			if hash == "" {
				hash = r.CutsSHA256
			} else if r.CutsSHA256 != hash {
				b.Fatalf("%v: other cuts than before", cmd)
			}
			clock[way.name] = append(clock[way.name], r.Seconds)
			used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			processor[way.name] = append(processor[way.name], used.Seconds())
		}
		turn++
	}
	for _, way := range ways {
		for i, s := range clock[way.name] {
			share[way.name] = append(share[way.name], s/clock["1x1"][i])
		}
		b.ReportMetric(median(clock[way.name]), way.name+"-s")
		b.ReportMetric(median(processor[way.name]), way.name+"-cpu-s")
		if way.name != "1x1" {
			b.ReportMetric(median(share[way.name]), way.name+"/1x1")
		}
	}
	b.ReportMetric(0, "ns/op") // meaningless for three runs together
}

// median returns the median.
func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
