package topo

// A part is the cores of one rank, each with those of its processors that are the
// rank's: all but where two ranks have to share a core. Parts keep the order of
// the node's cores.

// parts divides the node among its ranks:
//
//  1. While there are cores for all threads, whole domains are filled with ranks
//     that fit, else ranks get equal numbers of cores in order.
//  2. While there are processors for all threads, the same with processors.
//  3. Else ranks get equal numbers of cores, or of processors where there are more
//     ranks than cores; and where there are more ranks than processors, each rank
//     gets one processor that others have too.
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

// spread divides cores among ranks, by domains if all ranks fit into them. Room is
// how many threads a domain's cores are for; there is room for all of them.
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
	// Each rank goes where its share of the domain is largest.
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

// divide gives ranks even parts of cores, in order: of whole cores if each part
// then has a processor for every thread, else of processors, of which there must
// be enough.
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

// cut returns the cores with those of their processors, counted over all of them
// in order, that are from one place up to another.
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

// byDomain splits cores, which are in order of domains, by these.
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

// processors returns those of cores.
func processors(cores []Core) CPUSet {
	var all []int
	for _, c := range cores {
		all = append(all, c.CPUs...)
	}
	return NewCPUSet(all...)
}

// count returns how many processors cores have.
func count(cores []Core) int {
	k := 0
	for _, c := range cores {
		k += len(c.CPUs)
	}
	return k
}

// places returns the processors for each thread of a rank: a core, if its part has
// as many; else one processor, the first of every core before any second one, and
// from the beginning again where there are not enough.
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

// sameDomain returns the processors of a part that are in one domain with a
// processor of it.
func sameDomain(part []Core, cpu int) CPUSet {
	for _, d := range byDomain(part) {
		if all := processors(d); all.Contains(cpu) {
			return all
		}
	}
	return nil
}
