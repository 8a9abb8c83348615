package topo

import (
	"errors"
	"fmt"
	"strings"
)

// ErrShare is wrapped by errors about arguments of [Node.Plan].
var ErrShare = errors.New("topo: no share of the node")

// maxThreads bounds the threads of all ranks of a node.
const maxThreads = 1 << 20

// Crowding says what threads share.
type Crowding int

const (
	// OwnCores: no two threads are on one core.
	OwnCores Crowding = iota
	// OwnProcessors: some threads share a core, each on its own hardware thread.
	OwnProcessors
	// TakingTurns: some threads share a processor.
	TakingTurns
)

// Plan is an assignment of the node's processors to the threads of its ranks.
type Plan struct {
	Policy         Policy
	Ranks, Threads int // ranks on the node, threads of each rank
	// Sets are the processors of each thread, by local rank and thread. With None they are all
	// processors of the node, and threads need not be bound to them.
	Sets [][]CPUSet
	// Parts are the processors of each rank's share of the node, including those that its threads
	// leave free. With None they are all processors of the node.
	Parts []CPUSet
	// Crowding is the least that threads share. With None and NUMA the system may place threads so
	// that they share more.
	Crowding Crowding

	cores, cpus int
	quota       float64
}

// Plan spreads the threads of the ranks on this node over its usable processors.
//
// With a processor for each rank, ranks do not overlap; with one for each thread, threads do not.
// With a core for each thread, no core runs two. If every rank fits into a NUMA domain, each gets a
// part of one. The ranks are spread evenly over the domains, in order; each gets an even part of
// its domain, and its threads take neighboring cores. Slower kinds of cores are used only if the
// faster ones do not suffice. The plan depends only on the node and the arguments, so that all
// ranks that see the same node agree.
//
// The processors must be those that the ranks have in common. If a launcher has bound each rank to
// its own processors, plan with the result of [Sharers].
func (n *Node) Plan(ranks, threads int, policy Policy) (*Plan, error) {
	switch {
	case ranks < 1 || threads < 1:
		return nil, fmt.Errorf("%w: %d ranks of %d threads", ErrShare, ranks, threads)
	case ranks > maxThreads/threads:
		return nil, fmt.Errorf("%w: %d ranks of %d threads are more than %d threads", ErrShare, ranks, threads, maxThreads)
	case policy < None || policy > NUMA:
		return nil, fmt.Errorf("%w: unknown policy %v", ErrShare, policy)
	case len(n.Cores) == 0:
		return nil, fmt.Errorf("%w: the node has no cores", ErrShare)
	}
	p := &Plan{Policy: policy, Ranks: ranks, Threads: threads, cores: len(n.Cores), cpus: count(n.Cores), quota: n.Limits.CPU}
	switch total := ranks * threads; {
	case total > p.cpus:
		p.Crowding = TakingTurns
	case total > p.cores:
		p.Crowding = OwnProcessors
	}
	p.Sets, p.Parts = make([][]CPUSet, ranks), make([]CPUSet, ranks)
	var parts [][]Core
	if policy != None {
		parts = n.parts(ranks, threads)
	}
	for r := range p.Sets {
		p.Parts[r] = n.CPUs
		if policy != None {
			p.Parts[r] = processors(parts[r])
		}
		switch policy {
		case None:
			p.Sets[r] = make([]CPUSet, threads)
			for i := range p.Sets[r] {
				p.Sets[r][i] = n.CPUs
			}
		case Cores:
			p.Sets[r] = places(parts[r], threads)
		case NUMA:
			p.Sets[r] = places(parts[r], threads)
			for i, set := range p.Sets[r] {
				p.Sets[r][i] = sameDomain(parts[r], set[0])
			}
		}
	}
	return p, nil
}

// Note returns a warning about a plan: threads share cores or processors, or a control group limits
// their processor time. It is "" if there is none.
func (p *Plan) Note() string {
	var notes []string
	total := p.Ranks * p.Threads
	switch p.Crowding {
	case OwnProcessors:
		notes = append(notes, fmt.Sprintf("%s on %s: some share a core, as its hardware threads", plural(total, "thread"), plural(p.cores, "core")))
	case TakingTurns:
		notes = append(notes, fmt.Sprintf("%s on %s: they take turns", plural(total, "thread"), plural(p.cpus, "processor")))
	}
	if p.quota > 0 && p.quota < float64(min(total, p.cpus))-0.01 {
		notes = append(notes, fmt.Sprintf("control groups allow the time of %.4g processors: threads are held up when it is used", p.quota))
	}
	return strings.Join(notes, "; ")
}

// Sharers returns the index of a rank among the ranks of its node that have the same processors,
// and the number of these ranks. cpus are the processors of each rank of the node. A launcher may
// leave all ranks unbound, bind each to its own cores, or bind several to each NUMA domain. Sharers
// returns -1 and 0 if localRank is out of range.
func Sharers(cpus []CPUSet, localRank int) (rank, size int) {
	if localRank < 0 || localRank >= len(cpus) {
		return -1, 0
	}
	for r, set := range cpus {
		if !set.Equal(cpus[localRank]) {
			continue
		}
		if r == localRank {
			rank = size
		}
		size++
	}
	return rank, size
}
