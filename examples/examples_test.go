package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/programs"
)

// examples has the lines that a job of n ranks must print, in any order. The tests in the folder of each example
// check its results. Here the examples run as processes, and must print their results once.
var examples = []struct {
	name  string
	lines func(n int) []string // regular expressions
}{
	{"hello", func(n int) (lines []string) {
		for rank := range n {
			lines = append(lines, fmt.Sprintf(`\[%d\] hello from rank %d of %d \(backend shm\)`, rank, rank, n))
		}
		return lines
	}},
	{"ring", func(n int) []string {
		path := ""
		for rank := range n {
			path += fmt.Sprintf("%d ", rank)
		}
		return []string{`\[0\] the token went \[` + strings.TrimSpace(path) + `\] and is back`}
	}},
	{"pi", func(int) []string { return []string{`\[0\] pi is about 3\.141592653589\d{4}, off by 2\.\de-14`} }},
	{"heat2d", func(int) []string {
		return []string{`\[0\] 120 x 120 cells, at rest after 2831 steps, residual 9\.99\d{4}e-05`}
	}},
	{"fft3d", func(n int) []string {
		dims := map[int]string{1: "1 1", 2: "2 1", 3: "3 1", 5: "5 1"}[n]
		return []string{`\[0\] \[33 32 21\] points on \[` + dims + `\] ranks: 0 from the serial transform; sum of squares over Parseval's: 1\.000000000000`}
	}},
	{"window", func(int) []string {
		return []string{`\[0\] every even number up to 1000000 is the sum of two primes; 503222 needs the largest: 523 \+ 502699`}
	}},
	{"hashtable", func(int) []string {
		return []string{`\[0\] 43 numbers below 1000000 are the sum of two cubes in two ways, from 1729 to 994688`}
	}},
	{"hybrid", func(n int) []string {
		return []string{
			`\[0\] ` + fmt.Sprint(n) + ` ranks? on 1 node: .*; 1 thread per rank, not pinned; shm.*`,
			`\[0\] below 1000000, 837799 takes the most steps: 524`,
		}
	}},
	{"render", func(int) (lines []string) {
		for _, percent := range []int{10, 100, 30, 50, 60, 80} { // after each of 6 tiles, as text sorts them
			lines = append(lines, fmt.Sprintf(`\[0\] %d %%`, percent))
		}
		return append(lines, `\[0\] the picture is in \S+/mandelbrot\.png`, `\[0\] tiles by rank: \[[0-6 ]+\]`)
	}},
	{"ddp", func(n int) []string {
		return []string{
			fmt.Sprintf(`\[0\] 576 points, 1251 weights, %d ranks: loss 1\.\d{4} at first, 0\.0\d{3} after 400 steps`, n),
			`\[0\] 9\d\.\d % of the points are classified correctly; the weights' digest is [0-9a-f]{16}`,
		}
	}},
}

// folder is where the tests may leave files.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "examples-*"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// program returns the path of an example, or of cohort.
func program(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(programs.Build(t, "cmd/cohort", "examples/...", "gonum/examples/..."), name)
}

// untagged returns lines as ranks print them themselves, on another backend.
func untagged(lines []string, backend string) (plain []string) {
	tag := regexp.MustCompile(`^\\\[\d+\\\] `)
	for _, line := range lines {
		plain = append(plain, strings.ReplaceAll(tag.ReplaceAllString(line, ""), "shm", backend))
	}
	return plain
}

// args returns the arguments of an example.
func args(name string) []string {
	if name == "render" {
		return []string{"-width", "160", "-o", filepath.Join(folder, "mandelbrot.png")}
	}
	return nil
}

// Every example runs under cohort run, and alone. With -short it runs on three ranks only, and over MPI on two.
func TestExamplesRun(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			example := program(t, e.name)
			check(t, untagged(e.lines(1), "local"), exec.Command(example, args(e.name)...)) // no launcher: the one rank of the local backend
			if runtime.GOOS != "linux" {
				t.Log("alone only: the shm backend exists on Linux only")
				return
			}
			sizes := []int{1, 2, 3, 5}
			if testing.Short() {
				sizes = []int{3}
			}
			for _, n := range sizes {
				check(t, e.lines(n), exec.Command(program(t, "cohort"), append([]string{"run", "-n", fmt.Sprint(n), example}, args(e.name)...)...))
			}
		})
	}
}

// A rank of elastic is killed in the middle, or after its last step. A new process takes its place, and the sum is that of
// the squares below 1000.
func TestElasticReplacesKilledRank(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the shm backend exists on Linux only")
	}
	for _, at := range []string{"50", "100"} {
		run := exec.Command(program(t, "cohort"), "run", "-n", "3", "--restarts", "1", program(t, "elastic"), "-kill", "1", "-at", at)
		check(t, []string{
			`\[0\] the sum is 332833500, in generation 1`,
			`cohort: rank 1 was killed by signal 9 \(killed\) after .* s; starting it again \(restart 1 of 1\)`,
		}, run)
	}
}

// The test trains ddp's network over shm, and over tcp with and without shared memory on a node.
// The weights have the same bits, and on four ranks also in a second run. The tests of ddp compare
// shm with local.
func TestTrainingHasSameBitsOnEveryBackend(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the shm backend exists on Linux only")
	}
	for n, times := range sameBits() {
		first := onShm(t, n)
		for time := range times {
			for _, on := range []string{"shm", "tcp", "tcp COHORT_TCP_SHM=0"} {
				if on == "shm" && time == times-1 {
					continue // the first was one of them
				}
				words := strings.Fields(on)
				cmd := exec.Command(program(t, "cohort"), "run", "-n", fmt.Sprint(n), "--backend", words[0], program(t, "ddp"), "--steps", steps)
				cmd.Env = append(os.Environ(), words[1:]...)
				if d := digest(t, cmd); d != first {
					t.Errorf("%d ranks: the digest is %s over %s, and at first it was %s over shm", n, d, on, first)
				}
			}
		}
	}
}

// sameBits is on how many ranks ddp is trained, and how often, where bits are compared. Two ranks add up in one order
// only; the others would show another one.
func sameBits() map[int]int {
	if testing.Short() {
		return map[int]int{3: 1} // every backend is another run
	}
	return map[int]int{2: 1, 3: 1, 4: 2}
}

// steps is how many steps that is: a bit that differs has gone through all weights by then.
const steps = "40"

// onShm trains ddp's network on n ranks over shm, and returns the digest of its weights.
func onShm(t *testing.T, n int) string {
	t.Helper()
	return digest(t, exec.Command(program(t, "cohort"), "run", "-n", fmt.Sprint(n), program(t, "ddp"), "--steps", steps))
}

// digest runs ddp and returns the digest of the weights.
func digest(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	command.Dir = ".."
	out, err := command.CombinedOutput()
	d := regexp.MustCompile(`(?m)digest is ([0-9a-f]{16})$`).FindSubmatch(out)
	if err != nil || d == nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return string(d[1])
}

// check runs a command and compares its lines, sorted, with want.
func check(t *testing.T, want []string, command *exec.Cmd) {
	t.Helper()
	command.Dir = ".." // ddp's data are found from there
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	slices.Sort(lines)
	if len(lines) != len(want) {
		t.Fatalf("%v printed %d lines, want %d:\n%s", command, len(lines), len(want), out)
	}
	for i := range want {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(lines[i]) {
			t.Errorf("%v printed %q, want it to match %s", command, lines[i], want[i])
		}
	}
}
