package cohort

import "slices"

// gridOrder returns the number in a grid of each of its ranks, such that the ranks of every node form a block
// with few neighbors on other nodes. It returns nil if the order is as good, or if the nodes do not have equally
// many ranks.
//
// A block has the same extents on every node, which divide those of the grid. Of all such blocks the one is taken
// with which the fewest neighbors are on different nodes (Gropp: Using node and socket information to implement
// MPI Cartesian topologies, Parallel Computing 85, 2019).
func gridOrder(dims []int, periods []bool, nodeOf func(rank int) int) []int {
	n := product(dims)
	all, perNode := seats(n, nodeOf)
	if perNode < 2 || perNode == n {
		return nil
	}
	block := bestBlock(dims, periods, perNode)
	if block == nil || crossings(dims, periods, nodeOf) <= blockCrossings(dims, periods, block) {
		return nil
	}
	order := make([]int, n)
	for r, s := range all {
		stride := 1
		for i := len(dims) - 1; i >= 0; i-- { // blocks, and ranks in a block, are in row-major order
			blocks := dims[i] / block[i]
			order[r] += stride * (s.node%blocks*block[i] + s.inside%block[i])
			stride *= dims[i]
			s.node, s.inside = s.node/blocks, s.inside/block[i]
		}
	}
	return order
}

// seat is where a rank is: the node, numbered in the order of their lowest ranks, and the rank's place there.
type seat struct{ node, inside int }

// seats returns the seats of n ranks, and how many each node has, 0 if not all have the same.
func seats(n int, nodeOf func(rank int) int) (all []seat, perNode int) {
	index := make(map[int]int)
	var counts []int
	for r := range n {
		i, ok := index[nodeOf(r)]
		if !ok {
			i = len(counts)
			index[nodeOf(r)] = i
			counts = append(counts, 0)
		}
		all = append(all, seat{i, counts[i]})
		counts[i]++
	}
	if n == 0 || slices.Min(counts) != slices.Max(counts) {
		return nil, 0
	}
	return all, counts[0]
}

// bestBlock returns the extents of the block of n ranks with the fewest crossings, nil if there is none.
func bestBlock(dims []int, periods []bool, n int) (best []int) {
	block := make([]int, len(dims))
	var try func(i, left int)
	try = func(i, left int) {
		if i == len(dims) {
			if left == 1 && (best == nil || blockCrossings(dims, periods, block) < blockCrossings(dims, periods, best)) {
				best = slices.Clone(block)
			}
			return
		}
		for b := 1; b <= min(dims[i], left); b++ {
			if dims[i]%b == 0 && left%b == 0 {
				block[i] = b
				try(i+1, left/b)
			}
		}
	}
	try(0, n)
	return best
}

// blockCrossings returns how many pairs of neighbors are in different blocks.
func blockCrossings(dims []int, periods []bool, block []int) (sum int) {
	n := product(dims)
	for i, d := range dims {
		borders := d/block[i] - 1
		if periods[i] && borders > 0 {
			borders++
		}
		sum += n / d * borders
	}
	return sum
}

// crossings returns how many pairs of neighbors are on different nodes if the ranks keep their numbers.
func crossings(dims []int, periods []bool, nodeOf func(rank int) int) (sum int) {
	stride := 1
	for i := len(dims) - 1; i >= 0; i-- {
		d := dims[i]
		for r := range product(dims) {
			up := r + stride
			if r/stride%d == d-1 {
				if up -= d * stride; !periods[i] {
					continue
				}
			}
			if nodeOf(r) != nodeOf(up) {
				sum++
			}
		}
		stride *= d
	}
	return sum
}
