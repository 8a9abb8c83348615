package topo_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

// sets formats a plan: blanks between threads, bars between ranks.
func sets(p *topo.Plan) string {
	var ranks []string
	for _, r := range p.Sets {
		var threads []string
		for _, s := range r {
			threads = append(threads, s.String())
		}
		ranks = append(ranks, strings.Join(threads, " "))
	}
	return strings.Join(ranks, " | ")
}

// TestPlanPlacesThreads checks plans on typical machines.
func TestPlanPlacesThreads(t *testing.T) {
	for _, c := range []struct {
		machine        func(testing.TB) *disk
		mask           string
		ranks, threads int
		policy         topo.Policy
		want           string
		crowding       topo.Crowding
	}{
		{server, "", 1, 2, topo.None, "0-31 0-31", topo.OwnCores},

		// One rank per socket; its threads on neighboring cores.
		{server, "", 2, 1, topo.Cores, "0,16 | 8,24", topo.OwnCores},
		{server, "", 2, 4, topo.Cores, "0,16 1,17 2,18 3,19 | 8,24 9,25 10,26 11,27", topo.OwnCores},
		{server, "", 4, 2, topo.Cores, "0,16 1,17 | 4,20 5,21 | 8,24 9,25 | 12,28 13,29", topo.OwnCores},
		{server, "", 4, 2, topo.NUMA, "0-3,16-19 0-3,16-19 | 4-7,20-23 4-7,20-23 | 8-11,24-27 8-11,24-27 | 12-15,28-31 12-15,28-31", topo.OwnCores},
		{server, "", 2, 1, topo.NUMA, "0-7,16-23 | 8-15,24-31", topo.OwnCores},
		// Three ranks of two threads: two in the first socket.
		{server, "", 3, 2, topo.Cores, "0,16 1,17 | 4,20 5,21 | 8,24 9,25", topo.OwnCores},
		// A rank that fits into a socket stays in it; a larger one uses the next, too.
		{server, "", 1, 3, topo.Cores, "0,16 1,17 2,18", topo.OwnCores},
		{server, "7-9,23-25", 1, 3, topo.Cores, "7,23 8,24 9,25", topo.OwnCores},
		{server, "7-9,23-25", 1, 3, topo.NUMA, "7,23 8-9,24-25 8-9,24-25", topo.OwnCores},
		// More threads than cores: hardware threads, the first of each core before the second.
		{server, "0-1,16-17", 1, 4, topo.Cores, "0 1 16 17", topo.OwnProcessors},
		{server, "0-1,16-17", 1, 3, topo.Cores, "0 1 16", topo.OwnProcessors},
		{server, "0-1,16-17", 2, 2, topo.Cores, "0 16 | 1 17", topo.OwnProcessors},
		{server, "0-1,16-17", 4, 1, topo.Cores, "0 | 16 | 1 | 17", topo.OwnProcessors},
		{server, "0-3,16-19", 3, 2, topo.Cores, "0 16 | 1 17 | 2,18 3,19", topo.OwnProcessors},
		{server, "0-2,16-18", 2, 3, topo.Cores, "0 1 16 | 17 2 18", topo.OwnProcessors},
		// More threads than processors: ranks do not overlap, but their threads do.
		{server, "0-1,16-17", 2, 3, topo.Cores, "0 16 0 | 1 17 1", topo.TakingTurns},
		{server, "0-1", 4, 1, topo.Cores, "0 | 0 | 1 | 1", topo.TakingTurns},
		{server, "0-1", 3, 2, topo.NUMA, "0 0 | 0 0 | 1 1", topo.TakingTurns},
		{server, "0,8", 1, 4, topo.NUMA, "0 8 0 8", topo.TakingTurns},

		{alternating, "", 2, 2, topo.Cores, "0 2 | 1 3", topo.OwnCores},
		{alternating, "", 2, 2, topo.NUMA, "0,2,4,6 0,2,4,6 | 1,3,5,7 1,3,5,7", topo.OwnCores},

		{quartered, "", 4, 4, topo.Cores, "0,16 1,17 2,18 3,19 | 4,20 5,21 6,22 7,23 | 8,24 9,25 10,26 11,27 | 12,28 13,29 14,30 15,31", topo.OwnCores},
		{quartered, "", 2, 8, topo.NUMA, "0-3,16-19 0-3,16-19 0-3,16-19 0-3,16-19 4-7,20-23 4-7,20-23 4-7,20-23 4-7,20-23 | " +
			"8-11,24-27 8-11,24-27 8-11,24-27 8-11,24-27 12-15,28-31 12-15,28-31 12-15,28-31 12-15,28-31", topo.OwnCores},

		{expander, "", 2, 2, topo.Cores, "0 1 | 4 5", topo.OwnCores},
		{unplugged, "", 3, 1, topo.Cores, "0,4 | 1 | 3,7", topo.OwnCores},
		{container, "", 2, 2, topo.Cores, "4 5 | 6 7", topo.OwnCores},

		// Fast cores first, then slow ones, then second hardware threads.
		{laptop, "", 2, 2, topo.Cores, "0-1 2-3 | 4-5 6-7", topo.OwnCores},
		{laptop, "", 4, 1, topo.NUMA, "0-1 | 2-3 | 4-5 | 6-7", topo.OwnCores},
		{laptop, "0-9", 1, 6, topo.Cores, "0-1 2-3 4-5 6-7 8 9", topo.OwnCores},
		{laptop, "0-9", 1, 7, topo.Cores, "0 2 4 6 8 9 1", topo.OwnProcessors},
		{board, "", 1, 2, topo.Cores, "4 5", topo.OwnCores},
	} {
		var mask topo.CPUSet
		if c.mask != "" {
			mask = set(c.mask)
		}
		n := c.machine(t).read(mask)
		p, err := n.Plan(c.ranks, c.threads, c.policy)
		if err != nil {
			t.Fatal(err)
		}
		if c.policy == topo.None && !p.Parts[0].Equal(n.CPUs) {
			t.Errorf("unpinned, a rank has %v of %v", p.Parts[0], n.CPUs)
		}
		if got := sets(p); got != c.want || p.Crowding != c.crowding {
			t.Errorf("%v: %d ranks of %d threads, %v:\n got %s (%d)\nwant %s (%d)", n, c.ranks, c.threads, c.policy, got, p.Crowding, c.want, c.crowding)
		}
	}
}

// randomNode makes a node of some domains, each with some cores of some processors.
func randomNode(r *rand.Rand) *topo.Node {
	n := &topo.Node{}
	cpu, most := 0, 1+r.IntN(4)
	for d := range 1 + r.IntN(4) {
		domain := topo.Domain{ID: 2 * d, Allowed: true}
		for range 1 + r.IntN(6) {
			core := topo.Core{Domain: domain.ID, Class: r.IntN(8) / 7}
			for range 1 + r.IntN(most) {
				core.CPUs = append(core.CPUs, cpu)
				cpu += 1 + r.IntN(2)
			}
			n.Cores = append(n.Cores, core)
			domain.CPUs = append(domain.CPUs, core.CPUs...)
		}
		n.CPUs = append(n.CPUs, domain.CPUs...)
		n.Domains = append(n.Domains, domain)
	}
	return n
}

// TestPlanKeepsItsPromises checks on many nodes what Plan's documentation promises of processors and cores.
func TestPlanKeepsItsPromises(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		n := randomNode(r)
		ranks, threads := 1+r.IntN(10), 1+r.IntN(6)
		policy := topo.Cores
		if seed%2 == 1 {
			policy = topo.NUMA
		}
		p, err := n.Plan(ranks, threads, policy)
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(n, p); err != nil {
			t.Fatalf("seed %d: %d ranks of %d threads, %v, on %s: %s: %v", seed, ranks, threads, policy, cores(n), sets(p), err)
		}
		again, err := n.Plan(ranks, threads, policy)
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("seed %d: not the same twice: %v", seed, err)
		}
	}
}

func verify(n *topo.Node, p *topo.Plan) error {
	total := p.Ranks * p.Threads
	coreOf, domainOf := map[int]int{}, map[int]int{}
	for i, c := range n.Cores {
		for _, cpu := range c.CPUs {
			coreOf[cpu], domainOf[cpu] = i, c.Domain
		}
	}
	if len(p.Sets) != p.Ranks {
		return fmt.Errorf("%d ranks", len(p.Sets))
	}
	ofRank := make([]topo.CPUSet, p.Ranks)
	threadsOn := map[int]int{} // by processor, in this plan
	for r, all := range p.Sets {
		if len(all) != p.Threads {
			return fmt.Errorf("rank %d has %d threads", r, len(all))
		}
		for i, s := range all {
			if len(s) == 0 || len(s.Minus(n.CPUs)) > 0 {
				return fmt.Errorf("thread %d of rank %d is on %v", i, r, s)
			}
			domains := map[int]bool{}
			for _, cpu := range s {
				threadsOn[cpu]++
				domains[domainOf[cpu]] = true
			}
			if len(domains) != 1 {
				return fmt.Errorf("thread %d of rank %d is in %d domains", i, r, len(domains))
			}
			ofRank[r] = ofRank[r].Union(s)
		}
	}

	// Threads use processors of their rank's part, and parts do not overlap either.
	if len(p.Parts) != p.Ranks {
		return fmt.Errorf("%d parts", len(p.Parts))
	}
	for r, part := range p.Parts {
		if len(ofRank[r].Minus(part)) > 0 || len(part.Minus(n.CPUs)) > 0 {
			return fmt.Errorf("rank %d has %v, its threads %v", r, part, ofRank[r])
		}
	}

	// Ranks do not overlap if there is a processor for each.
	if p.Ranks <= len(n.CPUs) {
		for r := range p.Parts {
			for q := range r {
				if both := p.Parts[r].Intersect(p.Parts[q]); both != nil {
					return fmt.Errorf("ranks %d and %d share %v", q, r, both)
				}
			}
		}
	}
	if p.Policy == topo.Cores && total <= len(n.CPUs) {
		for cpu, k := range threadsOn {
			if k > 1 {
				return fmt.Errorf("%d threads on processor %d", k, cpu)
			}
		}
	}
	// With cores for all, no two threads of different ranks are on one core, and with Cores no two
	// threads at all.
	if total <= len(n.Cores) {
		owner := map[int]int{}
		for r, all := range p.Sets {
			for i, s := range all {
				id := r * p.Threads
				if p.Policy == topo.Cores {
					id += i
				}
				for _, cpu := range s {
					if other, taken := owner[coreOf[cpu]]; taken && other != id {
						return fmt.Errorf("core %v runs two", n.Cores[coreOf[cpu]].CPUs)
					}
					owner[coreOf[cpu]] = id
				}
			}
		}
	}
	if want := wantCrowding(n, total); p.Crowding != want {
		return fmt.Errorf("crowding %d, want %d", p.Crowding, want)
	}
	// A rank has what it needs: also with NUMA, the threads in a domain have at least one processor
	// each.
	if total <= len(n.CPUs) {
		for r, s := range ofRank {
			if len(s) < p.Threads {
				return fmt.Errorf("rank %d has %v for %d threads", r, s, p.Threads)
			}
		}
	}
	return nil
}

func wantCrowding(n *topo.Node, total int) topo.Crowding {
	switch {
	case total <= len(n.Cores):
		return topo.OwnCores
	case total <= len(n.CPUs):
		return topo.OwnProcessors
	}
	return topo.TakingTurns
}

// TestThreadsTakeTurnsEvenly checks that threads share processors evenly.
func TestThreadsTakeTurnsEvenly(t *testing.T) {
	n := randomNode(rand.New(rand.NewPCG(3, 4)))
	k := len(n.CPUs)
	for _, c := range []struct{ ranks, threads int }{{1, 3*k + 1}, {k, 4}, {2*k + 1, 1}, {5 * k, 2}} {
		p, err := n.Plan(c.ranks, c.threads, topo.Cores)
		if err != nil {
			t.Fatal(err)
		}
		load := map[int]int{}
		for _, all := range p.Sets {
			for _, s := range all {
				if len(s) != 1 {
					t.Fatalf("%d ranks of %d: a thread on %v", c.ranks, c.threads, s)
				}
				load[s[0]]++
			}
		}
		fewest, most := c.ranks*c.threads, 0
		for _, cpu := range n.CPUs {
			fewest, most = min(fewest, load[cpu]), max(most, load[cpu])
		}
		// If ranks share processors, whole ranks do.
		if most-fewest > max(1, c.threads*min(1, c.ranks/(k+1))) {
			t.Errorf("%d ranks of %d threads on %d processors: %d to %d on each", c.ranks, c.threads, k, fewest, most)
		}
	}
}

func TestPlanRejectsBadArguments(t *testing.T) {
	n := server(t).read(nil)
	for _, c := range []struct{ size, threads, policy int }{
		{0, 1, 0}, {1, 0, 0}, {1, -1, 1}, {1, 1, 3}, {1, 1, -1}, {math.MaxInt / 2, math.MaxInt / 2, 1}, {1, 1<<20 + 1, 1},
	} {
		got, err := n.Plan(c.size, c.threads, topo.Policy(c.policy))
		if !errors.Is(err, topo.ErrShare) || got != nil {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
	if _, err := new(topo.Node).Plan(1, 1, topo.Cores); !errors.Is(err, topo.ErrShare) {
		t.Errorf("an empty node: %v", err)
	}
}

func TestPlanNoteNamesCrowding(t *testing.T) {
	for _, c := range []struct {
		machine        func(testing.TB) *disk
		ranks, threads int
		want           string
	}{
		{server, 2, 8, ""},
		{server, 2, 9, "18 threads on 16 cores: some share a core, as its hardware threads"},
		{server, 3, 11, "33 threads on 32 processors: they take turns"},
		{container, 1, 2, ""},
		{container, 1, 3, "control groups allow the time of 2.5 processors: threads are held up when it is used"},
		{container, 5, 1, "5 threads on 4 processors: they take turns; control groups allow the time of 2.5 processors: threads are held up when it is used"},
	} {
		p, err := c.machine(t).read(nil).Plan(c.ranks, c.threads, topo.Cores)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Note(); got != c.want {
			t.Errorf("%d of %d: got %q, want %q", c.ranks, c.threads, got, c.want)
		}
	}
}

func TestSharersOfEachProcess(t *testing.T) {
	all, one, other := set("0-7"), set("0-3"), set("4-7")
	for _, c := range []struct {
		cpus       []topo.CPUSet
		rank       int
		want, size int
	}{
		{[]topo.CPUSet{all, all, all}, 2, 2, 3},
		{[]topo.CPUSet{one, other}, 1, 0, 1},
		{[]topo.CPUSet{one, one, other, other, one}, 4, 2, 3},
		{[]topo.CPUSet{one, one, other, other, one}, 3, 1, 2},
		{[]topo.CPUSet{nil}, 0, 0, 1},
		{nil, 0, -1, 0},
		{[]topo.CPUSet{all}, -1, -1, 0},
	} {
		if rank, size := topo.Sharers(c.cpus, c.rank); rank != c.want || size != c.size {
			t.Errorf("%v: rank %d is %d of %d, want %d of %d", c.cpus, c.rank, rank, size, c.want, c.size)
		}
	}
}

func TestPolicyNamesRoundTrip(t *testing.T) {
	for p, name := range map[topo.Policy]string{topo.None: "none", topo.Cores: "cores", topo.NUMA: "numa"} {
		if got, err := topo.ParsePolicy(name); err != nil || got != p || p.String() != name {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "core", "NUMA", "Policy(3)"} {
		if got, err := topo.ParsePolicy(name); err == nil {
			t.Errorf("%q: got %v", name, got)
		}
	}
}
