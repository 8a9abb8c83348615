package topo

// A part is the cores of one rank, each with the processors that belong to the rank: all of them,
// unless two ranks share a core. Parts keep the order of the node's cores.

// parts divides the node among its ranks:
//
//  1. With a core for every thread, it fills whole domains with ranks if they fit; otherwise ranks
//     get equal numbers of cores, in order.
//  2. With a processor for every thread, it does the same with processors.
//  3. Otherwise ranks get equal numbers of cores; with more ranks than cores, equal numbers of
//     processors; with more ranks than processors, one processor each, shared with others.
func (n *Node) parts(ranks, threads int) [][]Core {
	total := ranks * threads
	if fast := n.fast(); total <= len(fast) {
		return spread(fast, ranks, threads, func(d []Core) int { return len(d) })
	}
	cpus := count(n.Cores)
	switch {
	case total <= len(n.Cores):
		return spread(n.Cores, ranks, threads, func(d []Core) int { return len(d) })
	case total <= cpus:
		return spread(n.Cores, ranks, threads, count)
	case ranks <= cpus:
		return divide(n.Cores, ranks, 1)
	}
	parts := make([][]Core, ranks)
	for r := range parts {
		at := r * cpus / ranks
		parts[r] = cut(n.Cores, at, at+1)
	}
	return parts
}

// fast returns the cores of the fastest kind.
func (n *Node) fast() []Core {
	var fast []Core
	for _, c := range n.Cores {
		if c.Class == 0 {
			fast = append(fast, c)
		}
	}
	return fast
}

// spread divides cores among ranks, by domains if all ranks fit into them. room returns how many
// threads a domain's cores can run; together there is room for all.
func spread(cores []Core, ranks, threads int, room func([]Core) int) [][]Core {
	domains := byDomain(cores)
	fits, most := 0, make([]int, len(domains))
	for d, in := range domains {
		most[d] = room(in) / threads
		fits += most[d]
	}
	if fits < ranks {
		return divide(cores, ranks, threads)
	}
	// Each rank goes to the domain where its share is largest.
	have := make([]int, len(domains))
	for range ranks {
		best := -1
		for d, in := range domains {
			if have[d] < most[d] && (best < 0 || room(in)*(have[best]+1) > room(domains[best])*(have[d]+1)) {
				best = d
			}
		}
		have[best]++
	}
	var parts [][]Core
	for d, in := range domains {
		if have[d] > 0 {
			parts = append(parts, divide(in, have[d], threads)...)
		}
	}
	return parts
}

// divide gives ranks even parts of cores, in order. It divides whole cores if each part then has a
// processor for every thread, and processors otherwise, of which there must be enough.
func divide(cores []Core, ranks, threads int) [][]Core {
	parts := make([][]Core, ranks)
	whole := len(cores) >= ranks
	for r := range parts {
		parts[r] = cores[r*len(cores)/ranks : (r+1)*len(cores)/ranks]
		whole = whole && count(parts[r]) >= threads
	}
	if whole {
		return parts
	}
	cpus := count(cores)
	for r := range parts {
		parts[r] = cut(cores, r*cpus/ranks, (r+1)*cpus/ranks)
	}
	return parts
}

// cut returns the cores with only the processors from index from up to to, counted over all cores
// in order.
func cut(cores []Core, from, to int) []Core {
	var part []Core
	at := 0
	for _, c := range cores {
		lo, hi := max(from-at, 0), min(to-at, len(c.CPUs))
		at += len(c.CPUs)
		if lo < hi {
			c.CPUs = c.CPUs[lo:hi]
			part = append(part, c)
		}
	}
	return part
}

// byDomain splits cores, which are ordered by domain.
func byDomain(cores []Core) [][]Core {
	var domains [][]Core
	for i, c := range cores {
		if i == 0 || c.Domain != cores[i-1].Domain {
			domains = append(domains, nil)
		}
		d := len(domains) - 1
		domains[d] = append(domains[d], c)
	}
	return domains
}

func processors(cores []Core) CPUSet {
	var all []int
	for _, c := range cores {
		all = append(all, c.CPUs...)
	}
	return NewCPUSet(all...)
}

func count(cores []Core) int {
	k := 0
	for _, c := range cores {
		k += len(c.CPUs)
	}
	return k
}

// places returns the processors for each thread of a rank: a core for each thread if there are
// enough; otherwise one processor, the first of every core before any second one, starting over if
// there are too few.
func places(part []Core, threads int) []CPUSet {
	var places []CPUSet
	if len(part) >= threads {
		for _, c := range part[:threads] {
			places = append(places, c.CPUs)
		}
		return places
	}
	for i := 0; len(places) < count(part); i++ {
		for _, c := range part {
			if i < len(c.CPUs) {
				places = append(places, c.CPUs[i:i+1])
			}
		}
	}
	for i := 0; len(places) < threads; i++ {
		places = append(places, places[i])
	}
	return places[:threads]
}

// sameDomain returns the processors of a part in the domain of one of them.
func sameDomain(part []Core, cpu int) CPUSet {
	for _, d := range byDomain(part) {
		if all := processors(d); all.Contains(cpu) {
			return all
		}
	}
	return nil
}
