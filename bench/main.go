// Command bench sets what cohort takes beside what the C MPI libraries on this machine take:
//
//	go run ./bench
//	go run ./bench -ops allreduce -ranks 4 -sizes 8
//	go run ./bench -over openmpi -thread single
//	go run ./bench -backend tcp
//
// It builds cohort and the C baseline (bench/baseline), runs them in turn, round after round, so
// that a machine whose speed drifts slows all of them, and prints the best time of each and the
// ratio of cohort's to that of the faster library. docs/bench.md says how to read it.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Where the programs are built.
const folder = "out/bench"

func main() {
	rounds := flag.Int("rounds", 5, "how often each is run")
	ranks := flag.Int("ranks", 2, "number of ranks")
	ops := flag.String("ops", "p2p,allreduce,allgatherv", "operations, see cohort bench --help")
	sizes := flag.String("sizes", "8,64,1024,65536,4194304", "message sizes in bytes")
	limit := flag.Float64("max", math.Inf(1), "fail if a ratio is above this")
	backend := flag.String("backend", "shm", "the backend: shm, or tcp, beside Open MPI's transport by TCP")
	over := flag.String("over", "", "compare cohort over an MPI library, mpich or openmpi, with that library in C")
	thread := flag.String("thread", "multiple", "the thread level of both with -over: single, funneled, serialized or multiple")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *ranks < 1 {
		flag.Usage()
		os.Exit(2)
	}
	all, err := contenders(*backend, *over)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *over != "" {
		os.Setenv("COHORT_MPI_THREAD", *thread) // for both
	}
	worst, err := compare(all, strings.Split(*ops, ","), *sizes, *ranks, *rounds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if worst > *limit {
		fmt.Fprintf(os.Stderr, "bench: the worst ratio is %.2f, the limit %.2f\n", worst, *limit)
		os.Exit(1)
	}
}

// contender is one of the programs that are compared.
type contender struct {
	name    string
	ours    bool // cohort, whose ratio is printed
	command func(op, sizes string, ranks int) *exec.Cmd
}

// byTCP has Open MPI send what goes to other ranks by TCP, also to those of the same node. ob1 is
// named because the other ways of Open MPI to send messages have transports of their own.
var byTCP = []string{"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=tcp,self"}

// contenders builds cohort and what libraries there are; those of cohort are the first. With
// over it is cohort over that library, and the library.
func contenders(backend, over string) ([]contender, error) {
	libraries := []string{"mpich", "openmpi"}
	var env []string
	switch {
	case backend != "shm" && backend != "tcp":
		return nil, fmt.Errorf("-backend %s: want shm or tcp", backend)
	case over != "" && backend != "shm":
		return nil, fmt.Errorf("-backend %s with -over %s: over an MPI library the backend is mpi", backend, over)
	case over != "" && !slices.Contains(libraries, over):
		return nil, fmt.Errorf("-over %s: want %s", over, strings.Join(libraries, " or "))
	case over != "":
		libraries = []string{over}
	case backend == "tcp":
		libraries, env = []string{"openmpi"}, byTCP
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	tool := filepath.Join(folder, "cohort")
	if err := build("go", "build", "-o", tool, "./cmd/cohort"); err != nil {
		return nil, err
	}
	all := cohorts(tool, backend, over)
	for _, library := range libraries {
		cc, err1 := exec.LookPath("mpicc." + library)
		_, err2 := exec.LookPath("mpiexec." + library)
		if err1 != nil || err2 != nil {
			fmt.Printf("%s is not installed; scripts/setup installs it\n", library)
			continue
		}
		program := filepath.Join(folder, "mpibase."+library)
		// gcc 12 takes a bound of MPICH's shared windows for an overflow.
		if err := build(cc, "-O3", "-Wno-stringop-overflow", "-o", program, "bench/baseline/mpibase.c"); err != nil {
			return nil, err
		}
		all = append(all, contender{library, false, func(op, sizes string, ranks int) *exec.Cmd {
			return mpiexec(library, ranks, env, program, op, sizes)
		}})
	}
	return all, nil
}

// cohorts returns the ways in which cohort, the program tool, takes part.
func cohorts(tool, backend, over string) []contender {
	if over != "" {
		return []contender{{"cohort", true, func(op, sizes string, ranks int) *exec.Cmd {
			return mpiexec(over, ranks, nil, tool, "bench", "--json", "--sizes", sizes, op)
		}}}
	}
	with := func(name string, env ...string) contender {
		return contender{name, true, func(op, sizes string, ranks int) *exec.Cmd {
			c := exec.Command(tool, "bench", "--json", "--backend", backend, "-n", strconv.Itoa(ranks), "--sizes", sizes, op)
			c.Env = append(os.Environ(), env...)
			return c
		}}
	}
	if backend == "tcp" {
		return []contender{with("sockets", "COHORT_TCP_SHM=0"), with("tcp", "COHORT_TCP_SHM=1")}
	}
	return []contender{with("cohort")}
}

// mpiexec returns what starts a program with a library's launcher.
func mpiexec(library string, ranks int, env []string, program ...string) *exec.Cmd {
	c := exec.Command("mpiexec."+library, append(launch(library, ranks), program...)...)
	c.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	c.Env = append(c.Env, env...)
	return c
}

func build(command string, args ...string) error {
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(command), strings.Join(args, " "), err, out)
	}
	return nil
}

// launch returns a launcher's arguments. As with cohort run, ranks are bound to cores where there
// are as many.
func launch(library string, ranks int) []string {
	n := strconv.Itoa(ranks)
	bound := ranks <= runtime.NumCPU()
	switch {
	case library == "mpich" && bound:
		return []string{"-n", n, "-bind-to", "core"}
	case library == "mpich":
		return []string{"-n", n}
	case bound:
		return []string{"-n", n, "--bind-to", "core"}
	}
	return []string{"-n", n, "--bind-to", "none", "--oversubscribe"}
}

// measure runs a contender and returns microseconds by message size.
func (c *contender) measure(op, sizes string, ranks int) (map[int]float64, error) {
	var stdout, stderr bytes.Buffer
	cmd := c.command(op, sizes, ranks)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", c.name, op, err, firstLine(stderr.String()+stdout.String()))
	}
	usec := make(map[int]float64)
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var r struct {
			Bytes int
			Usec  float64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s %s printed %s: %w", c.name, op, line, err)
		}
		usec[r.Bytes] = r.Usec
	}
	if len(usec) == 0 {
		return nil, fmt.Errorf("%s %s printed no result: %s", c.name, op, firstLine(stderr.String()))
	}
	return usec, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
