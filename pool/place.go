package pool

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// core is a physical core: those of its processors that may be used.
type core struct {
	domain int // the NUMA domain
	cpus   []int
}

// readCores returns the cores that the processors of a mask are on, by NUMA
// domain, from the files that the kernel has about them in a folder. What cannot
// be read there is taken for one domain, or for a core of its own.
func readCores(folder string, mask []int) []core {
	domains := make(map[int]int) // by processor
	lists, _ := filepath.Glob(filepath.Join(folder, "node", "node*", "cpulist"))
	for _, list := range lists {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(list)), "node"))
		if err != nil {
			continue
		}
		for _, cpu := range readList(list) {
			domains[cpu] = id
		}
	}
	first := make(map[int]int) // by processor, the first one of its core
	for _, cpu := range mask {
		first[cpu] = cpu
		if siblings := readList(filepath.Join(folder, "cpu", fmt.Sprintf("cpu%d", cpu), "topology", "thread_siblings_list")); len(siblings) > 0 {
			first[cpu] = slices.Min(siblings)
		}
	}
	sorted := slices.SortedFunc(slices.Values(mask), func(a, b int) int {
		return cmp.Or(domains[a]-domains[b], first[a]-first[b], a-b)
	})
	var cores []core
	for i, cpu := range sorted {
		if i == 0 || first[cpu] != first[sorted[i-1]] {
			cores = append(cores, core{domain: domains[cpu]})
		}
		last := &cores[len(cores)-1]
		last.cpus = append(last.cpus, cpu)
	}
	return cores
}

// readList reads a file in the kernel's format, such as "0-3,8"; what is not in it
// is not there.
func readList(file string) (cpus []int) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		from, to, ranged := strings.Cut(part, "-")
		lo, err := strconv.Atoi(from)
		hi := lo
		if err == nil && ranged {
			hi, err = strconv.Atoi(to)
		}
		if err != nil || lo < 0 || hi >= maxCPUs {
			return nil
		}
		for cpu := lo; cpu <= hi; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// place returns the processors of each worker of one of several processes that
// share the cores.
//
// The processes have contiguous parts of the cores, or of the processors where
// there are fewer cores than processes, so that no two overlap; only if there are
// fewer processors than processes they go round. So do workers with theirs.
func place(cores []core, policy Policy, rank, size, workers int) [][]int {
	if size > len(cores) {
		cores = split(cores)
	}
	if size > len(cores) {
		rank, size = rank%len(cores), len(cores)
	}
	cores = cores[rank*len(cores)/size : (rank+1)*len(cores)/size]
	if policy == Cores && workers > len(cores) {
		cores = split(cores)
	}
	sets := make([][]int, workers)
	for w := range sets {
		mine := cores[w*len(cores)/workers]
		if policy == Cores {
			sets[w] = mine.cpus
			continue
		}
		for _, c := range cores {
			if c.domain == mine.domain {
				sets[w] = append(sets[w], c.cpus...)
			}
		}
	}
	return sets
}

// split returns every processor as a core of its own.
func split(cores []core) (single []core) {
	for _, c := range cores {
		for _, cpu := range c.cpus {
			single = append(single, core{c.domain, []int{cpu}})
		}
	}
	return single
}

// ranges returns numbers in the kernel's format, in rising order.
func ranges(numbers []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(numbers)))
	var b strings.Builder
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(sorted[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(sorted[j]))
		}
		i = j + 1
	}
	return b.String()
}

// describe says what is pinned where: "4 workers pinned to cores: 0-3 to
// processors 0-3, one each; memory from the domain they run in".
func describe(cfg Config, workers []*worker) string {
	n := len(workers)
	s := fmt.Sprintf("%d workers", n)
	if n == 1 {
		s = "1 worker"
	}
	if !slices.ContainsFunc(workers, func(w *worker) bool { return len(w.cpus) > 0 }) {
		return s + ", not pinned"
	}
	s += " pinned"
	switch {
	case cfg.CPUs != nil:
	case cfg.Pin == Cores:
		s += " to cores"
	case cfg.Pin == NUMA:
		s += " to NUMA domains"
	}
	var parts []string
	shared := false
	for lo := 0; lo < n; {
		// Neighbours that are on the same processors, or each on the one after the other's.
		same, rising := lo+1, lo+1
		for same < n && slices.Equal(workers[same].cpus, workers[lo].cpus) {
			same++
		}
		for rising < n && len(workers[lo].cpus) == 1 && slices.Equal(workers[rising].cpus, []int{workers[rising-1].cpus[0] + 1}) {
			rising++
		}
		hi := max(same, rising)
		who := make([]int, 0, hi-lo)
		var cpus []int
		for _, w := range workers[lo:hi] {
			who = append(who, w.id)
			cpus = append(cpus, w.cpus...)
		}
		on := "nowhere"
		if len(cpus) > 0 {
			on = "processors " + ranges(cpus)
		}
		if rising > same {
			on += ", one each"
		}
		shared = shared || same-lo > len(workers[lo].cpus) && len(cpus) > 0
		parts = append(parts, ranges(who)+" to "+on)
		lo = hi
	}
	s += ": " + strings.Join(parts, "; ")
	if shared {
		s += "; more workers than processors"
	}
	for _, w := range workers {
		if w.policy != nil {
			return s + "; memory policy not changed: " + w.policy.Error()
		}
	}
	return s + "; memory local"
}
