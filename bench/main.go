// Command bench sets what cohort takes beside what the C MPI libraries on this machine take:
//
//	go run ./bench
//	go run ./bench -ops allreduce -ranks 4 -sizes 8
//	go run ./bench -over openmpi -thread single
//	go run ./bench -backend tcp
//	go run ./bench -page out/performance.md
//	go run ./bench -programs out/programs.md
//
// It builds cohort and the C baseline (bench/baseline), runs them in turn, round after round, so
// that a machine whose speed drifts slows all of them, and prints the best time of each and the
// ratio of cohort's to that of the faster library. With -page it measures everything and writes a
// page with tables and charts; with -programs it runs the programs of bench/npb and bench/prk instead.
// docs/bench.md says how to read them.
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
	"time"
)

// Where the programs are built.
const folder = "out/bench"

func main() {
	rounds := flag.Int("rounds", 5, "how often each is run; with -page at most, and not limited unless given")
	ranks := flag.Int("ranks", 2, "number of ranks")
	ops := flag.String("ops", "p2p,allreduce,allgatherv", "operations, see cohort bench --help; with -page all unless given")
	sizes := flag.String("sizes", "8,64,1024,65536,4194304", "message sizes in bytes; with -page more unless given")
	limit := flag.Float64("max", math.Inf(1), "fail if a ratio is above this")
	backend := flag.String("backend", "shm", "the backend: shm, or tcp, beside Open MPI's transport by TCP")
	over := flag.String("over", "", "compare cohort over an MPI library, mpich or openmpi, with that library in C")
	thread := flag.String("thread", "multiple", "the thread level of both with -over: single, funneled, serialized or multiple")
	file := flag.String("page", "", "measure all backends and libraries, and write this page and a folder of charts beside it")
	lasts := flag.Duration("for", 11*time.Minute, "begin no round of -page that would end later than this")
	from := flag.String("from", "", "measure nothing: write -page from what an earlier run recorded in this file")
	programs := flag.String("programs", "", "run the benchmark programs, three times each unless -rounds is given, and write this page")
	class := flag.String("class", "A", "the class of NPB's problems with -programs")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *ranks < 1 || *from != "" && *file == "" {
		flag.Usage()
		os.Exit(2)
	}
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
	given := make(map[string]bool)
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if *programs != "" {
		if !given["rounds"] {
			*rounds = 3
		}
		fail(writePrograms(*programs, *class, *rounds))
		return
	}
	if *file != "" {
		s := session{ops: pageOps, sizes: pageSizes, rounds: math.MaxInt, lasts: *lasts}
		if given["ops"] {
			s.ops = strings.Split(*ops, ",")
		}
		if given["sizes"] {
			s.sizes = *sizes
		}
		if given["rounds"] {
			s.rounds = *rounds
		}
		if *from == "" {
			*from = filepath.Join(folder, "results.jsonl")
			fail(s.record(*from))
		}
		fail(writePage(*file, *from))
		return
	}
	all, err := contenders(*backend, *over)
	fail(err)
	if *over != "" {
		os.Setenv("COHORT_MPI_THREAD", *thread) // for both
	}
	worst, err := compare(all, strings.Split(*ops, ","), *sizes, *ranks, *rounds)
	fail(err)
	if worst > *limit {
		fail(fmt.Errorf("the worst ratio is %.2f, the limit %.2f", worst, *limit))
	}
}

// workload is one run of a program.
type workload struct {
	op, sizes   string
	ranks, reps int
}

// contender is one of the programs that are compared.
type contender struct {
	name    string
	ours    bool // cohort, whose ratio is printed
	command func(workload) *exec.Cmd
}

// byTCP has Open MPI send what goes to other ranks by TCP, also to those of the same node. ob1 is
// named because the other ways of Open MPI to send messages have their own transports.
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
	tool, err := buildTool()
	if err != nil {
		return nil, err
	}
	all := cohorts(tool, backend, over)
	for _, library := range libraries {
		program, err := buildBaseline(library)
		if err != nil {
			return nil, err
		}
		if program == "" {
			fmt.Printf("%s is not installed; scripts/setup installs it\n", library)
			continue
		}
		all = append(all, baseline(library, library, program, env...))
	}
	return all, nil
}

// buildTool builds cohort and returns the program's path.
func buildTool() (string, error) {
	tool := filepath.Join(folder, "cohort")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	return tool, build("go", "build", "-o", tool, "./cmd/cohort")
}

// buildBaseline builds the C program for a library. It returns "" if the library is not installed.
func buildBaseline(library string) (string, error) {
	cc, err1 := exec.LookPath("mpicc." + library)
	_, err2 := exec.LookPath("mpiexec." + library)
	if err1 != nil || err2 != nil {
		return "", nil
	}
	program := filepath.Join(folder, "mpibase."+library)
	// gcc 12 takes a bound of MPICH's shared windows for an overflow.
	return program, build(cc, "-O3", "-pthread", "-Wno-stringop-overflow", "-o", program, "bench/baseline/mpibase.c")
}

// cohorts returns the ways in which cohort, the program tool, takes part.
func cohorts(tool, backend, over string) []contender {
	switch {
	case over != "":
		return []contender{overMPI("cohort", tool, over)}
	case backend == "tcp":
		return []contender{native("sockets", tool, "tcp", "COHORT_TCP_SHM=0"), native("tcp", tool, "tcp", "COHORT_TCP_SHM=1")}
	}
	return []contender{native("cohort", tool, backend)}
}

// native is cohort on one of its own backends.
func native(name, tool, backend string, env ...string) contender {
	return contender{name, true, func(w workload) *exec.Cmd {
		c := exec.Command(tool, "bench", "--json", "--backend", backend, "-n", strconv.Itoa(w.ranks),
			"--reps", strconv.Itoa(w.reps), "--sizes", w.sizes, w.op)
		c.Env = append(os.Environ(), env...)
		return c
	}}
}

// overMPI is cohort over an MPI library.
func overMPI(name, tool, library string, env ...string) contender {
	return contender{name, true, func(w workload) *exec.Cmd {
		return mpiexec(library, w.ranks, env, tool, "bench", "--json", "--reps", strconv.Itoa(w.reps), "--sizes", w.sizes, w.op)
	}}
}

// baseline is the C program on an MPI library.
func baseline(name, library, program string, env ...string) contender {
	return contender{name, false, func(w workload) *exec.Cmd {
		return mpiexec(library, w.ranks, env, program, w.op, w.sizes, strconv.Itoa(w.reps))
	}}
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

// record is a line that cohort bench --json and the baseline print.
type record struct {
	Program  string  `json:"program"` // the contender
	Round    int     `json:"round"`
	Op       string  `json:"op"`
	Lib      string  `json:"lib"`
	Ranks    int     `json:"ranks"`
	Bytes    int     `json:"bytes"`
	Usec     float64 `json:"usec"`
	Handover float64 `json:"handover_ns"`     // 0 if not known
	Error    string  `json:"error,omitempty"` // the program has no result, because of this
}

// measure runs a contender and returns a record for each message size.
func (c *contender) measure(w workload) (all []record, err error) {
	var stdout, stderr bytes.Buffer
	cmd := c.command(w)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", c.name, w.op, err, firstLine(stderr.String()+stdout.String()))
	}
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "{") {
			continue
		}
		r := record{Program: c.name}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s %s printed %s: %w", c.name, w.op, line, err)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s %s printed no result: %s", c.name, w.op, firstLine(stderr.String()))
	}
	return all, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
