package pool

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// BenchmarkOpenMP compares loops of two tasks on two threads with gcc's OpenMP, parallel for
// schedule(dynamic). It calls the loops from outside the pool, in a function of Run, and in OpenMP,
// alternating. It reports the least nanoseconds per loop. On a machine with other work, run
//
//	go test -c -o bin/pool.test ./pool && cd pool
//	chrt -r 10 ../bin/pool.test -test.run=- -test.bench=OpenMP -test.benchtime=20x
func BenchmarkOpenMP(b *testing.B) {
	program := openMP(b)
	for _, spin := range []time.Duration{0, 2 * time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond} {
		for _, pin := range []Pinning{None, Cores} {
			b.Run(fmt.Sprintf("busy=%v/pin=%s", spin, pin), func(b *testing.B) { againstOpenMP(b, program, spin, pin) })
		}
	}
}

func againstOpenMP(b *testing.B, program string, spin time.Duration, pin Pinning) {
	calls := int(min(20000, 20*time.Millisecond/max(spin, 1)))
	omp := exec.Command(program, "2", "2", strconv.FormatInt(int64(spin), 10), strconv.Itoa(calls))
	omp.Env = append(os.Environ(), "OMP_PROC_BIND="+strconv.FormatBool(pin == Cores))
	in := must.Get(omp.StdinPipe())
	out := must.Get(omp.StdoutPipe())
	if err := omp.Start(); err != nil {
		b.Fatal(err)
	}
	defer omp.Wait()
	defer in.Close()
	lines := bufio.NewScanner(out)

	p := must.Get(New(Config{Threads: 2, Pin: pin}))
	defer p.Close()
	f := func(worker, i int) error {
		if spin > 0 {
			for begin := time.Now(); time.Since(begin) < spin; {
			}
		}
		return nil
	}
	loops := func() error {
		for range calls {
			if err := ForEach(p, 2, f); err != nil {
				return err
			}
		}
		return nil
	}
	ways := []struct {
		name string
		ns   func() (float64, error)
	}{
		{"outside-ns", func() (float64, error) { return timed(calls, loops) }},
		{"in-Run-ns", func() (float64, error) { return timed(calls, func() error { return p.Run(loops) }) }},
		{"openmp-ns", func() (float64, error) {
			fmt.Fprintln(in)
			if !lines.Scan() {
				return 0, fmt.Errorf("OpenMP's program has ended: %v", lines.Err())
			}
			return strconv.ParseFloat(lines.Text(), 64)
		}},
	}
	best := make([]float64, len(ways))
	for b.Loop() {
		for i, way := range ways {
			ns := must.Get(way.ns())
			if best[i] == 0 || ns < best[i] {
				best[i] = ns
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all three
	for i, way := range ways {
		b.ReportMetric(best[i], way.name)
	}
}

// timed returns the nanoseconds per call, given a function that makes several calls.
func timed(calls int, f func() error) (float64, error) {
	begin := time.Now()
	err := f()
	return float64(time.Since(begin)) / float64(calls), err
}

// openMP builds the OpenMP program.
func openMP(tb testing.TB) string {
	program := filepath.Join(tb.TempDir(), "omp")
	if out, err := exec.Command("gcc", "-O2", "-fopenmp", "-o", program, "testdata/omp.c").CombinedOutput(); err != nil {
		need.Missing(tb, "gcc cannot compile OpenMP: %v: %s", err, strings.TrimSpace(string(out)))
	}
	return program
}

// BenchmarkForEach shows that a loop allocates nothing.
func BenchmarkForEach(b *testing.B) {
	p := must.Get(New(Config{Threads: 2}))
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := ForEach(p, 2, func(int, int) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
