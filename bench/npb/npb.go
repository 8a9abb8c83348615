// Package npb is what the programs in its folders share. They are kernels of the NAS Parallel Benchmarks, written from
// the report of that name (Bailey et al., RNR-94-007, NASA Ames 1994): random numbers, clocks, verification, and the
// report that a program prints.
package npb

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Main runs a kernel as a program. The flag -class chooses a problem from classes, which run solves. Rank 0 prints the
// report, as text or with -json as one JSON object. A result that is not the published one is an error.
//
// run calls Start and Stop of the clock around the part that the benchmark times, and returns the same result on every
// rank.
func Main[P any](kernel string, classes map[string]P, run func(world *cohort.Comm, problem P, clock *Clock) (Result, error)) {
	names := strings.Join(slices.Sorted(maps.Keys(classes)), ", ")
	class := flag.String("class", "S", "the size of the problem: "+names)
	asJSON := flag.Bool("json", false, "print the report as a JSON object")
	flag.Parse()
	problem, ok := classes[*class]
	if !ok || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "-class %s %s: want one class of %s, and no arguments\n", *class, strings.Join(flag.Args(), " "), names)
		os.Exit(2)
	}
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		var clock Clock
		result, err := run(world, problem, &clock)
		if err != nil {
			return err
		}
		r := Report{Kernel: kernel, Class: *class, Result: result, Verified: result.Verified(), Ranks: world.Size(), Backend: world.Backend()}
		if r.Seconds, r.Communication, err = clock.slowest(world); err != nil {
			return err
		}
		r.Mops = r.Operations / r.Seconds / 1e6
		if world.Rank() == 0 {
			if *asJSON {
				err = json.NewEncoder(os.Stdout).Encode(r)
			} else {
				_, err = fmt.Print(r)
			}
		}
		if err == nil && !r.Verified {
			err = fmt.Errorf("%s class %s: verification failed", kernel, *class)
		}
		return err
	})
}

// Result is what a kernel computes, and what that took by the benchmark's own count.
type Result struct {
	Size       string  // for people, such as "256 x 256 x 128"
	Iterations int     // of the timed part
	Threads    int     // of each rank; 0 is 1
	Operations float64 // of the timed part, on all ranks
	Checks     []Check
}

// Check compares a computed value with the one that it must have, a published one as a rule.
type Check struct {
	Name        string
	Value, Want float64
	Tolerance   float64 // relative; 0 asks for the same value
}

// Near returns the check that a value is the wanted one but for a relative difference of at most tolerance.
func Near(name string, value, want, tolerance float64) Check {
	return Check{Name: name, Value: value, Want: want, Tolerance: tolerance}
}

// Passed reports whether the value is the wanted one. A NaN is not.
func (c Check) Passed() bool { return math.Abs(c.Value-c.Want) <= c.Tolerance*math.Abs(c.Want) }

// Verified reports whether there are checks and all have passed.
func (r Result) Verified() bool {
	return len(r.Checks) > 0 && !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.Passed() })
}

// Report is what a program prints.
type Report struct {
	Kernel, Class string
	Result
	Verified      bool
	Seconds       float64    // of the slowest rank
	Communication [2]float64 // seconds of Seconds, on the rank that spends least and on the one that spends most
	Mops          float64    // million operations per second, on all ranks together
	Ranks         int
	Backend       string
}

// String returns the report as text, with values in as many digits as identify them.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s class %s: %s, iterations: %d\n", r.Kernel, r.Class, r.Size, r.Iterations)
	line := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "  %-20s"+format+"\n", append([]any{name}, values...)...)
	}
	for _, c := range r.Checks {
		line(c.Name, "%s, want %s", number(c.Value), number(c.Want))
	}
	line("verification", "%s", map[bool]string{true: "successful", false: "failed"}[r.Verified])
	line("time", "%.3f s", r.Seconds)
	line("in communication", "%.3f s, with waiting up to %.3f s", r.Communication[0], r.Communication[1])
	line("Mop/s in all", "%.1f", r.Mops)
	line("ranks", "%d, with threads: %d, backend: %s", r.Ranks, max(r.Threads, 1), r.Backend)
	return b.String()
}

// number returns the shortest text that identifies a number, without an exponent.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
