package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A programs page has the times of the benchmark programs, bench/npb and bench/prk, in some settings.

// setting is a way to run a program.
type setting struct {
	name    string
	ranks   int
	command func(program ...string) *exec.Cmd
}

// settings returns those of this machine.
func settings(tool string) (all []setting) {
	native := func(name string, ranks int, backend string, env ...string) {
		all = append(all, setting{name, ranks, func(program ...string) *exec.Cmd {
			c := exec.Command(tool, append([]string{"run", "--tag=false", "--backend", backend, "-n", strconv.Itoa(ranks)}, program...)...)
			c.Env = append(os.Environ(), env...)
			return c
		}})
	}
	native("one rank", 1, "shm")
	native("shm", 2, "shm")
	native("tcp, sockets", 2, "tcp", "COHORT_TCP_SHM=0")
	for _, library := range []string{"mpich", "openmpi"} {
		if _, err := exec.LookPath("mpiexec." + library); err == nil {
			all = append(all, setting{"over " + library, 2, func(program ...string) *exec.Cmd {
				return mpiexec(library, 2, []string{"COHORT_BACKEND=mpi"}, program...)
			}})
		}
	}
	return all
}

// outcome is what a program prints with -json: of bench/npb the first lines, of bench/prk the last two.
type outcome struct {
	Seconds, Mops float64
	Communication [2]float64 // least and most seconds of a rank
	Each, Rate    float64    // seconds of an iteration, and work in a second
	Unit          string
}

// run runs a program some times and returns its fastest run.
func (s *setting) run(rounds int, program ...string) (best outcome, err error) {
	for range rounds {
		var stderr strings.Builder
		c := s.command(append(program, "-json")...)
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			return best, fmt.Errorf("%v: %w: %s", c, err, firstLine(stderr.String()))
		}
		var o outcome
		if err := json.Unmarshal(out, &o); err != nil {
			return best, fmt.Errorf("%v printed %q: %w", c, out, err)
		}
		if best == (outcome{}) || o.Seconds+o.Each < best.Seconds+best.Each {
			best = o
		}
	}
	return best, nil
}

// writePrograms runs all programs in all settings, NPB's in the given class, and writes a page.
func writePrograms(page, class string, rounds int) error {
	tool, err := buildTool()
	if err != nil {
		return err
	}
	if err := build("go", "build", "-o", folder+string(filepath.Separator), "./bench/npb/...", "./bench/prk"); err != nil {
		return err
	}
	mains, err := filepath.Glob("bench/npb/*/main.go")
	if err != nil {
		return err
	}
	all := settings(tool)
	var b strings.Builder
	b.WriteString("<!-- Written by make bench. Do not edit. -->\n# Times of the benchmark programs\n\n")
	b.WriteString("[benchmarks.md](../benchmarks.md) says what they are. Each ran with a verified result. Of " +
		strconv.Itoa(rounds) + " runs the fastest counts.\nOnly `one rank` has one rank, the others have two.\n\n")
	for _, row := range describe() {
		fmt.Fprintf(&b, "- %s: %s\n", row[0], row[1])
	}
	head := func(title, first string) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s |", title, first)
		for _, s := range all {
			b.WriteString(" " + s.name + " |")
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	}
	row := func(name string, cell func(outcome) string, program ...string) error {
		b.WriteString("| " + name + " |")
		for _, s := range all {
			o, err := s.run(rounds, program...)
			if err != nil {
				return err
			}
			b.WriteString(" " + cell(o) + " |")
		}
		b.WriteString("\n")
		return nil
	}
	head("NAS Parallel Benchmarks, class "+class+": seconds, and what the rank that spends least spends in communication", "kernel")
	for _, m := range mains {
		name := filepath.Base(filepath.Dir(m))
		cell := func(o outcome) string { return fmt.Sprintf("%.3f, %.3f", o.Seconds, o.Communication[0]) }
		if err := row(strings.ToUpper(name), cell, filepath.Join(folder, name), "-class", class); err != nil {
			return err
		}
	}
	head("Parallel Research Kernels", "kernel")
	for _, kernel := range []string{"p2p", "stencil", "transpose", "transpose -onesided", "random", "random -size 16 -onesided", "reduce", "sparse"} {
		cell := func(o outcome) string { return fmt.Sprintf("%.5g %s", o.Rate, o.Unit) }
		if err := row(kernel, cell, append([]string{filepath.Join(folder, "prk")}, strings.Fields(kernel)...)...); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(b.String()), 0o666)
}
