package topo

import (
	"errors"
	"fmt"
	"strings"
)

// ErrShare is in every error of arguments that no share can be given for.
var ErrShare = errors.New("topo: no share of the node")

// ErrCrowded is in the error that [Node.Share] returns beside sets that overlap,
// because there are more threads than processors.
var ErrCrowded = errors.New("topo: more threads than processors")

// maxThreads bounds the threads of all ranks of a node.
const maxThreads = 1 << 20

// Crowding is how much of a processor each thread has to itself.
type Crowding int

const (
	// OwnCores means that no two threads are on one core.
	OwnCores Crowding = iota
	// OwnProcessors means that some threads share a core, each as one of its
	// hardware threads.
	OwnProcessors
	// TakingTurns means that some threads share a processor.
	TakingTurns
)

// Plan is how the threads of a node's ranks are spread over its processors.
type Plan struct {
	Policy         Policy
	Ranks, Threads int // ranks on the node, threads of each
	// Sets are the processors of each thread, by local rank and thread. With None
	// they are all of the node's, which is no reason to bind a thread to them.
	Sets [][]CPUSet
	// Parts are the processors of each rank: those of its threads, and what there is
	// besides in its share of the node. With None they are all of the node's.
	Parts []CPUSet
	// Crowding is how the threads share the hardware. With None and NUMA they may
	// do so in spite of it, where the system puts them so.
	Crowding Crowding

	cores, cpus int
	quota       float64
}

// Plan spreads the threads of the ranks on this node over its usable processors.
//
// Ranks never overlap while there is a processor for each, and threads neither
// while there is one for each of them. While there are cores for all threads, no
// core runs two. A rank whose threads fit into a NUMA domain has them in one, if
// that can be had for all ranks; the ranks are spread evenly over the domains, in
// order, and each gets an even part of its domain, of which its threads take
// neighbouring cores. Slower kinds of cores are used only when the faster ones are
// not enough. The plan depends on the node and the arguments alone, so that all
// ranks that see the same node agree on it.
//
// The processors must be those that the ranks have in common: where a launcher
// has bound each rank to its own, plan with the result of [Sharers].
func (n *Node) Plan(ranks, threads int, policy Policy) (*Plan, error) {
	switch {
	case ranks < 1 || threads < 1:
		return nil, fmt.Errorf("%w: %d ranks of %d threads", ErrShare, ranks, threads)
	case ranks > maxThreads/threads:
		return nil, fmt.Errorf("%w: %d ranks of %d threads are more than %d threads", ErrShare, ranks, threads, maxThreads)
	case policy < None || policy > NUMA:
		return nil, fmt.Errorf("%w: there is no %v", ErrShare, policy)
	case len(n.Cores) == 0:
		return nil, fmt.Errorf("%w: it has no cores", ErrShare)
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

// Share returns the processors for each thread of one of the ranks on this node,
// as [Node.Plan] spreads them. Where threads have to share processors, it returns
// the sets, which are the best there are, and an error that wraps ErrCrowded and
// gives the numbers; every other error comes without sets.
func (n *Node) Share(localRank, localSize, threads int, policy Policy) ([]CPUSet, error) {
	if localRank < 0 || localRank >= localSize {
		return nil, fmt.Errorf("%w: rank %d of %d on the node", ErrShare, localRank, localSize)
	}
	p, err := n.Plan(localSize, threads, policy)
	if err != nil {
		return nil, err
	}
	if p.Crowding == TakingTurns {
		err = fmt.Errorf("%w: %s on %s", ErrCrowded, plural(localSize*threads, "thread"), plural(p.cpus, "processor"))
	}
	return p.Sets[localRank], err
}

// Note returns what a user should know of a plan: that threads share cores or
// processors, or that a control group allows less time than they can use; "" if
// there is nothing to say.
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

// Sharers returns the place of a rank among those of its node that have the same
// processors, given the processors of each of the node's ranks, and how many these
// are. A launcher that leaves ranks unbound gives all of them the same, one that
// binds them to cores gives each its own, and one that binds them to NUMA domains
// something between. It returns -1 and 0 for a rank that is not there.
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
