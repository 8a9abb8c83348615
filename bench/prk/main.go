// Command prk runs one of the Parallel Research Kernels: small programs that each use one feature of a parallel
// machine hard, and that know their result. The kernels are written from the descriptions in "The Parallel
// Research Kernels: A tool for architecture and programming system investigation" (Van der Wijngaart and Mattson,
// HPEC 2014).
//
//	go run ./cmd/cohort run -n 2 ./bench/prk stencil
//	go run ./cmd/cohort run -n 4 ./bench/prk transpose -size 2000 -onesided
//
// docs/benchmarks.md says what each measures.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/cohort-hpc/cohort"
)

// params are the parameters of a kernel. It has those that are not 0 in its defaults.
type params struct {
	size, iterations, radius, group int
	oneSided, json                  bool
}

// kernel is one of the Parallel Research Kernels.
type kernel struct {
	name     string
	about    string
	defaults params
	oneSided bool   // there is a form with windows
	unit     string // of a million pieces of work in a second

	// run does the work once to warm up, and then as often as the parameters say. It returns how much work one
	// iteration is, and how many seconds the timed ones took. It verifies the result: an error if it is wrong.
	run func(world *cohort.Comm, p params) (work, seconds float64, err error)
}

var kernels = []kernel{
	{"p2p", "a pipeline through a -size x -size grid, by messages of -group rows", params{size: 1000, iterations: 100, group: 1}, false, "MFlop/s", pipeline},
	{"stencil", "a star of -radius cells on a -size x -size grid, with halos by views", params{size: 2000, iterations: 50, radius: 2}, false, "MFlop/s", stencil},
	{"transpose", "a -size x -size matrix is transposed, by Alltoallv or Put", params{size: 2000, iterations: 20}, true, "MB/s", transpose},
	{"random", "updates of random words of a table of 2^-size words, -group at a time, or by Accumulate", params{size: 20, iterations: 2, group: 1024}, true, "million updates/s", random},
	{"reduce", "the sum of a vector of -size numbers on each rank", params{size: 1 << 20, iterations: 100}, false, "MFlop/s", reduce},
	{"sparse", "a sparse matrix, a star of -radius on a grid of 2^-size x 2^-size cells, times a vector", params{size: 9, iterations: 50, radius: 4}, false, "MFlop/s", sparse},
}

func main() {
	k, p, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "prk:", err)
		usage()
		os.Exit(2)
	}
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		work, seconds, err := k.run(world, p)
		if err == nil && world.Rank() == 0 {
			each := seconds / float64(p.iterations)
			r := report{k.name, world.Size(), world.Backend(), each, work / each / 1e6, k.unit}
			if p.json {
				return json.NewEncoder(os.Stdout).Encode(r)
			}
			fmt.Printf("%s on %d ranks over %s: result verified; %.3g s for one of %d iterations, %.5g %s\n",
				r.Kernel, r.Ranks, r.Backend, r.Each, p.iterations, r.Rate, r.Unit)
		}
		return err
	})
}

// report is what is printed with -json.
type report struct {
	Kernel  string
	Ranks   int
	Backend string
	Each    float64 // seconds of an iteration
	Rate    float64
	Unit    string // of Rate
}

func usage() {
	fmt.Fprintln(os.Stderr, "\nusage: prk KERNEL [-size N] [-iterations N] [-radius N] [-group N] [-onesided] [-json]")
	for _, k := range kernels {
		fmt.Fprintf(os.Stderr, "  %-10s %s\n", k.name, k.about)
	}
}

// parse returns the kernel that a command line names, with its parameters.
func parse(args []string) (kernel, params, error) {
	if len(args) == 0 {
		return kernel{}, params{}, fmt.Errorf("name a kernel")
	}
	for _, k := range kernels {
		if k.name != args[0] {
			continue
		}
		p := k.defaults
		set := flag.NewFlagSet(k.name, flag.ContinueOnError)
		set.Usage = func() {}
		numbers := map[string]*int{"size": &p.size, "iterations": &p.iterations, "radius": &p.radius, "group": &p.group}
		for name, value := range numbers {
			if *value > 0 {
				set.IntVar(value, name, *value, "")
			}
		}
		set.BoolVar(&p.json, "json", false, "")
		if k.oneSided {
			set.BoolVar(&p.oneSided, "onesided", false, "")
		}
		if err := set.Parse(args[1:]); err != nil {
			return k, p, err
		}
		if set.NArg() > 0 {
			return k, p, fmt.Errorf("%s: %q is not a flag", k.name, set.Arg(0))
		}
		for name, value := range numbers {
			if set.Lookup(name) != nil && *value < 1 {
				return k, p, fmt.Errorf("%s: -%s %d: want at least 1", k.name, name, *value)
			}
		}
		return k, p, nil
	}
	return kernel{}, params{}, fmt.Errorf("there is no kernel %s", args[0])
}

// repeat calls step once to warm up and then the given number of times. It returns how many seconds the
// slowest rank took for the latter.
func repeat(world *cohort.Comm, iterations int, step func() error) (float64, error) {
	if err := step(); err != nil {
		return 0, err
	}
	if err := world.Barrier(); err != nil {
		return 0, err
	}
	start := time.Now()
	for range iterations {
		if err := step(); err != nil {
			return 0, err
		}
	}
	return cohort.AllreduceOne(world, time.Since(start).Seconds(), cohort.Max)
}

// verify returns an error on every rank if what the ranks have differs from what they should have: off is the
// largest relative difference on this rank.
func verify(world *cohort.Comm, off float64) error {
	off, err := cohort.AllreduceOne(world, off, cohort.Max)
	if err == nil && !(off <= 1e-8) {
		err = fmt.Errorf("the result is wrong by a factor of %.3g", off)
	}
	return err
}
