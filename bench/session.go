package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/topo"
)

// A page measures these. It takes the median of a few batches and the best of many rounds, because the
// machine may be disturbed for seconds.
const (
	pageSizes = "8,1024,8192,65536,1048576,4194304"
	pageReps  = 5
)

// payloads are what ranks of a large dispatch program (sddp) send in each pass: each rank's part of 206 MB and
// of 3.2 MB, and the bounds, 32 B.
var payloads = []measured{
	{"allgatherv", 2, 103e6}, {"allgatherv", 2, 1.6e6}, {"allreduce", 2, 32},
	{"allgatherv", 4, 51.5e6}, {"allgatherv", 4, 0.8e6}, {"allreduce", 4, 32},
}

var pageOps = []string{"p2p", "bw", "allreduce", "bcast", "allgatherv", "barrier", "iallreduce", "pallreduce"}

// header is the first line of a recorded session.
type header struct {
	Machine [][2]string `json:"machine"` // rows of a table
	Load    float64     `json:"load"`    // programs that ran before
	Missing []string    `json:"missing"` // libraries that are not installed
}

// session measures what a page has.
type session struct {
	ops    []string
	sizes  string
	rounds int
	lasts  time.Duration
}

// record measures in rounds, each of which runs all programs in turn for one operation after another,
// and writes the results to a file, one JSON object per line.
func (s *session) record(file string) error {
	began := time.Now()
	var h header
	fmt.Sscan(text("/proc/loadavg"), &h.Load) // before building adds to it
	tool, err := buildTool()
	if err != nil {
		return err
	}
	two := []contender{
		native("shm", tool, "shm"), native("local", tool, "local"),
		native("tcp", tool, "tcp", "COHORT_TCP_SHM=1"), native("sockets", tool, "tcp", "COHORT_TCP_SHM=0"),
	}
	four := two[:3:3] // without MPICH, see the page
	h.Machine = describe()
	const single, multiple = "COHORT_MPI_THREAD=single", "COHORT_MPI_THREAD=multiple"
	for _, library := range []string{"mpich", "openmpi"} {
		program, err := buildBaseline(library)
		if err != nil {
			return err
		}
		if program == "" {
			h.Missing = append(h.Missing, library)
			continue
		}
		two = append(two, baseline(library, library, program, single),
			baseline(library+"-multiple", library, program, multiple), overMPI("over-"+library, tool, library, multiple))
		if library == "openmpi" {
			two = append(two, baseline("openmpi-tcp", library, program, append(byTCP, single)...))
			four = append(four, baseline(library, library, program, single),
				baseline(library+"-multiple", library, program, multiple), overMPI("over-"+library, tool, library, multiple))
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	out := json.NewEncoder(f)
	if err := out.Encode(h); err != nil {
		return err
	}
	lacks := make(map[string]bool) // programs without an operation
	var longest time.Duration
	for round := 1; round <= s.rounds && (round == 1 || time.Since(began)+longest <= s.lasts); round++ {
		start := time.Now()
		for _, p := range payloads {
			if slices.Contains(s.ops, p.op) {
				programs := map[int][]contender{2: two, 4: four}[p.ranks]
				if err := measureAll(out, programs, workload{p.op, strconv.Itoa(p.bytes), p.ranks, pageReps}, round, lacks); err != nil {
					return err
				}
			}
		}
		for _, op := range s.ops {
			if err := measureAll(out, two, workload{op, s.sizes, 2, pageReps}, round, lacks); err != nil {
				return err
			}
			if op == "allreduce" || op == "barrier" {
				if err := measureAll(out, four, workload{op, "8", 4, pageReps}, round, lacks); err != nil {
					return err
				}
			}
			for pairs := 2; op == "bw" && pairs <= 16; pairs *= 2 {
				if err := measureAll(out, four, workload{op, "8", 2 * pairs, pageReps}, round, lacks); err != nil {
					return err
				}
			}
		}
		longest = max(longest, time.Since(start))
		fmt.Printf("round %d: %v\n", round, time.Since(start).Round(time.Second))
	}
	return f.Close()
}

// measureAll runs programs in turn. It is an error if cohort fails; a library may lack the operation.
func measureAll(out *json.Encoder, all []contender, w workload, round int, lacks map[string]bool) error {
	for _, c := range all {
		key := fmt.Sprint(c.name, w.op, w.ranks)
		if lacks[key] {
			continue
		}
		records, err := c.measure(w)
		if err != nil && c.ours {
			return err
		}
		if err != nil {
			lacks[key] = true
			records = []record{{Program: c.name, Op: w.op, Ranks: w.ranks, Error: firstLine(err.Error())}}
		}
		for _, r := range records {
			r.Round = round
			if err := out.Encode(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// describe returns what a page says about this machine and this tree.
func describe() (rows [][2]string) {
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	if node, err := topo.Here(); err == nil {
		add("processor", fmt.Sprintf("%s: cores: %d, hardware threads: %d", node.Model, len(node.Cores), len(node.CPUs)))
		var caches []string
		for _, c := range node.Caches {
			if name := fmt.Sprintf("L%d %s %d KiB", c.Level, strings.ToLower(c.Type), c.Size>>10); len(c.CPUs) > 0 && c.CPUs.Contains(node.CPUs[0]) {
				caches = append(caches, fmt.Sprintf("%s for %d", name, len(c.CPUs)))
			}
		}
		add("caches, and how many hardware threads share one, as the system reports them", strings.Join(caches, ", "))
	}
	virtual := "no hypervisor is reported"
	if strings.Contains(text("/proc/cpuinfo"), " hypervisor ") {
		virtual = "yes"
	}
	add("virtual machine", virtual)
	add("system", strings.TrimSpace(runtime.GOOS+"/"+runtime.GOARCH+", kernel "+text("/proc/sys/kernel/osrelease")))
	add("Go", runtime.Version())
	commit := command("git", "rev-parse", "--short=12", "HEAD")
	if command("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs") != "" {
		commit += ", with changes that are not committed"
	}
	add("cohort", commit)
	add("measured", time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	return rows
}

// text returns what is in a file, "" if it cannot be read.
func text(file string) string {
	b, _ := os.ReadFile(file)
	return strings.TrimSpace(string(b))
}

// command returns what a command prints, "" if it fails.
func command(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// load reads a recorded session.
func load(file string) (h header, all []record, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return h, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err = d.Decode(&h); err != nil {
		return h, nil, fmt.Errorf("%s: %w", file, err)
	}
	for {
		var r record
		switch err = d.Decode(&r); err {
		case nil:
			all = append(all, r)
		case io.EOF:
			return h, all, nil
		default:
			return h, nil, fmt.Errorf("%s: %w", file, err)
		}
	}
}
