package pool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/denied"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/topo"
)

// status returns a line of /proc/PID/status for a thread, or "".
func status(tid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// threads returns each worker's thread, as its tasks see it.
func threads(t *testing.T, p *Pool) []int {
	t.Helper()
	tids := make([]int, p.Workers())
	if err := ForEachWorker(p, func(w int) error { tids[w] = unix.Gettid(); return nil }); err != nil {
		t.Fatal(err)
	}
	return tids
}

// TestEachWorkerHasOneThread checks that each worker keeps its own thread, and that the threads end
// with the pool.
func TestEachWorkerHasOneThread(t *testing.T) {
	const workers = 4
	for range 10 { // a goroutine may begin on any thread, the first one of the process too
		p := must.Get(New(Config{Threads: workers}))
		tids := threads(t, p)
		if len(slices.Compact(slices.Sorted(slices.Values(tids)))) != workers || slices.Contains(tids, os.Getpid()) {
			t.Errorf("the workers' threads are %v, in process %d", tids, os.Getpid())
		}
		check := func() error {
			return ForEach(p, 200, func(w, i int) error {
				if tid := unix.Gettid(); tid != tids[w] {
					return fmt.Errorf("on thread %d, want %d", tid, tids[w])
				}
				if i%50 == 0 {
					runtime.Gosched() // as a task that waits for something
				}
				return nil
			})
		}
		if err := errors.Join(check(), p.Run(check), check()); err != nil {
			t.Error(err)
		}
		for w, tid := range tids {
			if got, want := status(tid, "Name"), fmt.Sprintf("cohort-w%d", w); got != want {
				t.Errorf("the thread of worker %d is named %q, want %q", w, got, want)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for _, tid := range tids {
			if !soon(func() bool { return status(tid, "Name") != fmt.Sprintf("cohort-w%d", slices.Index(tids, tid)) }) {
				t.Errorf("thread %d lives on after Close", tid)
			}
		}
	}
}

// TestWorkersArePinned reads the affinity mask of every worker, and of the other threads.
func TestWorkersArePinned(t *testing.T) {
	node := must.Get(topo.Here())
	var every [][]int // for each worker one processor, or all
	for _, cpu := range node.CPUs {
		every = append(every, []int{cpu})
	}
	every = append(every, node.CPUs)
	for _, cfg := range []Config{
		{Threads: 1, Pin: Cores}, {Threads: 2, Pin: Cores}, {Threads: 5, Pin: Cores},
		{Threads: 1, Pin: NUMA}, {Threads: 3, Pin: NUMA},
		{Threads: 2, Pin: Cores, LocalRank: 0, LocalSize: 2}, {Threads: 2, Pin: Cores, LocalRank: 1, LocalSize: 2},
		{Threads: 2, Env: env("COHORT_PIN", "cores")},
		{CPUs: every}, {CPUs: every, Pin: None},
	} {
		name := fmt.Sprintf("%d %s%v", cfg.Threads, cfg.Pin, cfg.CPUs)
		policy := map[Pinning]topo.Policy{Cores: topo.Cores, NUMA: topo.NUMA, FromEnv: topo.Cores}[cfg.Pin]
		want := cfg.CPUs
		if want == nil {
			plan := must.Get(node.Plan(max(cfg.LocalSize, 1), cfg.Threads, policy))
			for _, s := range plan.Sets[cfg.LocalRank] {
				want = append(want, s)
			}
		}
		p := open(t, cfg)
		check := func() error {
			return ForEach(p, 100, func(w, i int) error {
				var set unix.CPUSet
				if err := unix.SchedGetaffinity(0, &set); err != nil {
					return err
				}
				for _, cpu := range want[w] {
					if !set.IsSet(cpu) {
						return fmt.Errorf("processor %d is missing", cpu)
					}
				}
				if n := set.Count(); n != len(want[w]) {
					return fmt.Errorf("%d processors, want %v", n, want[w])
				}
				return nil
			})
		}
		if err := errors.Join(check(), p.Run(check)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for w, tid := range threads(t, p) {
			if got, want := status(tid, "Cpus_allowed_list"), topo.NewCPUSet(want[w]...).String(); got != want {
				t.Errorf("%s: worker %d may run on %s, want %s", name, w, got, want)
			}
			// Without its own policy, a thread's mappings are listed as "default".
			if maps, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/numa_maps", tid)); err == nil && p.Denied() == nil {
				if !strings.Contains(string(maps), " local ") {
					t.Errorf("%s: the memory policy of worker %d is not local", name, w)
				}
			}
		}
		// Threads that start while workers are busy are not pinned.
		var wg sync.WaitGroup
		if err := ForEach(p, 4*p.Workers(), func(int, int) error {
			for range 4 {
				wg.Go(func() { runtime.LockOSThread(); runtime.Gosched() })
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		entries := must.Get(os.ReadDir("/proc/self/task"))
		workers := threads(t, p)
		for _, e := range entries {
			tid, _ := strconv.Atoi(e.Name())
			if got := status(tid, "Cpus_allowed_list"); !slices.Contains(workers, tid) && got != "" && got != node.CPUs.String() {
				t.Errorf("%s: thread %d, which is no worker, may run on %s, want %s", name, tid, got, node.CPUs)
			}
		}
		wg.Wait()
		p.Close()
	}
}

// TestProcessesOfNodeShareProcessors checks that processes that share a node take different
// processors.
func TestProcessesOfNodeShareProcessors(t *testing.T) {
	const size = 2
	node := must.Get(topo.Here())
	if len(node.CPUs) < size {
		t.Skipf("%d processors are too few for %d ranks to have one each", len(node.CPUs), size)
	}
	for _, pin := range []Pinning{Cores, NUMA} {
		of := make(map[int]int) // the rank that has a processor
		for rank := range size {
			p := open(t, Config{Threads: 3, Pin: pin, LocalRank: rank, LocalSize: size})
			for _, w := range p.workers {
				for _, cpu := range w.cpus {
					if r, taken := of[cpu]; taken && r != rank {
						t.Errorf("%s: ranks %d and %d both have processor %d", pin, r, rank, cpu)
					}
					of[cpu] = rank
				}
			}
		}
	}
}

// TestPinningToMissingProcessorsFails asks for processors of which all or some do not exist.
func TestPinningToMissingProcessorsFails(t *testing.T) {
	node := must.Get(topo.Here())
	before := runtime.GOMAXPROCS(0)
	for _, sets := range [][][]int{{node.CPUs, {8000}}, {node.CPUs, {node.CPUs[0], 8000}}} {
		p, err := New(Config{CPUs: sets})
		if err == nil {
			p.Close()
		}
		if !errors.Is(err, backend.ErrInit) || !contains(err, "worker 1") || !contains(err, "8000") {
			t.Errorf("%v: %v", sets, err)
		}
	}
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("GOMAXPROCS is %d after that, and was %d", n, before)
	}
}

// TestIdleWorkersUseNoProcessorTime checks that the kernel's count of the workers' time, in
// nanoseconds, does not grow while they are idle.
func TestIdleWorkersUseNoProcessorTime(t *testing.T) {
	p := open(t, Config{Threads: 2})
	tids := threads(t, p)
	if err := ForEach(p, 100, func(int, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	used := func() (ns []string) {
		for _, tid := range tids {
			text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", tid))
			if err != nil {
				t.Skip("the kernel does not count: ", err)
			}
			time, _, _ := strings.Cut(string(text), " ")
			ns = append(ns, time)
		}
		return ns
	}
	asleep := func() bool {
		for _, tid := range tids {
			if !strings.HasPrefix(status(tid, "State"), "S") {
				return false
			}
		}
		return p.asleep.Load() == 2
	}
	if !soon(asleep) {
		t.Fatal("the workers do not sleep")
	}
	before := used()
	<-time.After(20 * time.Millisecond) // the measured time
	if after := used(); !slices.Equal(after, before) {
		t.Errorf("idle workers have used %v ns, and %v before", after, before)
	}
}

// TestDeniedPinningIsNoError runs itself again where a container's rules forbid to pin threads.
func TestDeniedPinningIsNoError(t *testing.T) {
	if os.Getenv("POOL_TEST_DENIED") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "POOL_TEST_DENIED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := denied.Syscall(unix.SYS_SCHED_SETAFFINITY); err != nil {
		t.Fatal(err)
	}
	p := open(t, Config{Threads: 1, Pin: Cores})
	if err := p.Denied(); !errors.Is(err, unix.EPERM) || !contains(err, "not pinned: ") {
		t.Errorf("got %v, want EPERM", err)
	}
}
