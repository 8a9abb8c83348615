package cohort

import (
	"fmt"
	"math"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/datatype"
)

// Cart is a communicator whose ranks form a Cartesian grid. They are numbered in row-major order: the
// last coordinate varies fastest (MPI-4.1 section 8.5). Pass its Comm to operations.
//
// A nil *Cart gives [ErrComm] in its own methods and in neighborhood collectives. The methods that it has
// from its Comm panic on it, because Go reads the field before it calls them.
type Cart struct {
	*Comm
	dims    []int
	periods []bool
}

// Neighbor is the two neighbors of a rank along one dimension: Lower is one step down, Upper one step
// up. Beyond an edge they are ProcNull.
type Neighbor struct{ Lower, Upper int }

// CartCreate makes a communicator whose ranks form a grid with the given extents. The grid is
// periodic in the dimensions where periods is true. Extents of 0 are chosen as [DimsCreate] does.
// Ranks outside the grid get nil, nil. With reorder, ranks may get other numbers than in c: if the nodes have
// equally many ranks, those of a node become a block of the grid, with fewer neighbors on other nodes.
//
// Collective: all ranks of c call it, with the same arguments.
//
// Errors: [ErrCount] for a negative extent, for a grid larger than c, and if dims and periods differ
// in length; [ErrMismatch] on every rank if the calls differ.
//
// Deadline: [ErrTimeout], and c is broken.
func (c *Comm) CartCreate(dims []int, periods []bool, reorder bool) (*Cart, error) {
	grid := slices.Clone(dims)
	var bad error
	switch {
	case len(periods) != len(dims):
		bad = fault(ErrCount, fmt.Sprintf("%d dims and %d periods; want equally many", len(dims), len(periods)))
	case slices.Contains(dims, 0):
		bad = fillDims(c.Size(), grid)
	default:
		bad = checkDims(grid)
	}
	n := 1
	if bad == nil {
		if n = product(grid); n > c.Size() {
			bad = fault(ErrCount, fmt.Sprintf("a grid of %v has %d ranks, want at most %d, those of the communicator", grid, n, c.Size()))
		}
	}
	color, number := 0, c.Rank()
	if bad == nil && number >= n {
		color = Undefined
	}
	if bc := c.base().Backend(); bad == nil && reorder && color == 0 && bc != nil {
		if order := gridOrder(grid, periods, bc.NodeOf); order != nil {
			number = order[number]
		}
	}
	d, err := c.base().Split(comm.CartCall, "cart", color, number, datatype.ID(fmt.Sprint(dims, periods, reorder)), bad)
	if d == nil || err != nil {
		return nil, err
	}
	return newCart(d, grid, slices.Clone(periods)), nil
}

// newCart returns the grid of a new communicator.
func newCart(d *comm.Comm, dims []int, periods []bool) *Cart {
	c := &Cart{Comm: (*Comm)(d), dims: dims, periods: periods}
	p := &backend.Neighbors{Cart: true}
	for _, n := range c.Neighbors() {
		p.Sources = append(p.Sources, n.Lower, n.Upper)
	}
	p.Destinations = p.Sources
	d.SetNeighbors(p)
	return c
}

var errNoGrid = fault(ErrComm, "the grid is nil")

func (c *Cart) neighborhood() *Comm {
	if c == nil {
		return nil
	}
	return c.Comm
}

// Sub divides the grid into grids of fewer dimensions: those for which keep is true. The ranks of each have the
// same coordinates in the other dimensions, and keep their order. If keep is false for all dimensions, every
// rank gets a grid to itself.
//
// Collective: all ranks of c call it, with the same argument.
//
// Errors: [ErrCount] if keep does not have one entry per dimension; [ErrMismatch] on every rank if the calls
// differ.
//
// Deadline: [ErrTimeout], and c is broken.
func (c *Cart) Sub(keep []bool) (*Cart, error) {
	n := c.neighborhood()
	var bad error
	var dims []int
	var periods []bool
	color := 0
	if n != nil && len(keep) != len(c.dims) {
		bad = fault(ErrCount, fmt.Sprintf("%d entries in keep, want %d, one per dimension", len(keep), len(c.dims)))
	} else if n != nil {
		for i, d := range c.dims {
			if keep[i] {
				dims, periods = append(dims, d), append(periods, c.periods[i])
			} else {
				color = color*d + c.Rank()/product(c.dims[i+1:])%d
			}
		}
	}
	d, err := n.base().Split(comm.SubCall, "sub", color, 0, datatype.ID(fmt.Sprint(keep)), bad)
	if err != nil {
		return nil, err
	}
	return newCart(d, dims, periods), nil
}

// Dims returns the extents of the grid.
func (c *Cart) Dims() []int {
	if c == nil {
		return nil
	}
	return slices.Clone(c.dims)
}

// Periods returns, for each dimension, whether the grid is periodic in it.
func (c *Cart) Periods() []bool {
	if c == nil {
		return nil
	}
	return slices.Clone(c.periods)
}

// Coords returns the coordinates of a rank.
//
// Not collective; errors: [ErrRank] for a rank outside the communicator.
func (c *Cart) Coords(rank int) ([]int, error) {
	if c == nil {
		return nil, c.neighborhood().failed("coords", errNoGrid)
	}
	if rank < 0 || rank >= c.Size() {
		return nil, c.failed("coords",
			fault(ErrRank, fmt.Sprintf("rank is rank %d of %d; want 0 to %d", rank, c.Size(), c.Size()-1)))
	}
	x := make([]int, len(c.dims))
	for i := len(x) - 1; i >= 0; i-- {
		x[i] = rank % c.dims[i]
		rank /= c.dims[i]
	}
	return x, nil
}

// MyCoords returns the coordinates of the calling rank.
func (c *Cart) MyCoords() []int {
	if c == nil {
		return nil
	}
	x, _ := c.Coords(c.Rank()) // this rank is in the grid
	return x
}

// CartRank returns the rank at the given coordinates. In periodic dimensions they wrap around.
//
// Not collective.
//
// Errors: [ErrRank] for a coordinate outside a dimension that is not periodic; [ErrCount] for a wrong
// number of coordinates.
func (c *Cart) CartRank(coords []int) (int, error) {
	if c == nil {
		return Undefined, c.neighborhood().failed("cartrank", errNoGrid)
	}
	if len(coords) != len(c.dims) {
		return Undefined, c.failed("cartrank",
			fault(ErrCount, fmt.Sprintf("%d coordinates, want %d, one per dimension", len(coords), len(c.dims))))
	}
	rank := 0
	for i, x := range coords {
		d := c.dims[i]
		if c.periods[i] {
			x = (x%d + d) % d
		} else if x < 0 || x >= d {
			return Undefined, c.failed("cartrank",
				fault(ErrRank, fmt.Sprintf("coordinate %d is %d; want 0 to %d, for the grid is not periodic there", i, x, d-1)))
		}
		rank = rank*d + x
	}
	return rank, nil
}

// Shift returns the partners of the calling rank when every rank sends to the rank disp steps up
// dimension dim: source is the rank it receives from, dest the rank it sends to. A partner beyond an
// edge is ProcNull.
//
// Not collective; errors: [ErrCount] for a dimension outside the grid.
func (c *Cart) Shift(dim, disp int) (source, dest int, err error) {
	if c == nil {
		return ProcNull, ProcNull, c.neighborhood().failed("shift", errNoGrid)
	}
	if dim < 0 || dim >= len(c.dims) {
		return ProcNull, ProcNull, c.failed("shift",
			fault(ErrCount, fmt.Sprintf("dimension %d of a grid of %d dimensions; the first is 0", dim, len(c.dims))))
	}
	if c.periods[dim] {
		disp %= c.dims[dim] // an int may not hold the sum with a coordinate
	}
	return c.step(dim, -disp), c.step(dim, disp), nil
}

// step returns the rank disp steps up dimension dim from this one.
func (c *Cart) step(dim, disp int) int {
	stride := product(c.dims[dim+1:])
	d := c.dims[dim]
	x := c.Rank() / stride % d
	to := x + disp
	if c.periods[dim] {
		to = (to%d + d) % d
	} else if to < 0 || to >= d {
		return ProcNull
	}
	return c.Rank() + (to-x)*stride
}

// Neighbors returns the neighbors of the calling rank, one pair for each dimension.
func (c *Cart) Neighbors() []Neighbor {
	if c == nil {
		return nil
	}
	n := make([]Neighbor, len(c.dims))
	for i := range n {
		n[i] = Neighbor{c.step(i, -1), c.step(i, 1)}
	}
	return n
}

// DimsCreate replaces the zeros in dims so that the product of all extents is n. The extents it fills
// in are as close to each other as possible, larger ones first (MPI-4.1 section 8.5.2).
//
// Not collective; errors: [ErrCount] if there is no such grid; dims is unchanged then.
func DimsCreate(n int, dims []int) error {
	grid := slices.Clone(dims)
	err := fillDims(n, grid)
	if err == nil && product(grid) != n {
		err = fault(ErrCount, fmt.Sprintf("a grid of %v has %d ranks, want %d", grid, product(grid), n))
	}
	if err != nil {
		return &OpError{Op: "dimscreate", Rank: Undefined, Peer: Undefined, Tag: Undefined, Err: err}
	}
	copy(dims, grid)
	return nil
}

func checkDims(dims []int) error {
	for i, d := range dims {
		if d < 0 {
			return fault(ErrCount, fmt.Sprintf("dims[%d] is %d; want 0 or more", i, d))
		}
	}
	return nil
}

// fillDims replaces the zeros of dims.
func fillDims(n int, dims []int) error {
	if err := checkDims(dims); err != nil {
		return err
	}
	fixed, free := 1, 0
	for _, d := range dims {
		if d == 0 {
			free++
		} else {
			fixed = product([]int{fixed, d})
		}
	}
	if free == 0 {
		return nil
	}
	if n < 1 || n%fixed != 0 {
		return fault(ErrCount, fmt.Sprintf("%d ranks are not a multiple of %d, the product of the extents given", n, fixed))
	}
	best := factorize(n/fixed, free)
	for i := range dims {
		if dims[i] == 0 {
			dims[i], best = best[0], best[1:]
		}
	}
	return nil
}

// factorize returns k factors of n in descending order. Their largest is as small as possible and,
// among such factors, their smallest is as large as possible.
func factorize(n, k int) []int {
	all, prime := divisors(n)
	var best []int
	var try func(n, k, limit int, sofar []int)
	try = func(n, k, limit int, sofar []int) {
		if k == 0 {
			if best == nil || sofar[len(sofar)-1] > best[len(best)-1] {
				best = slices.Clone(sofar)
			}
			return
		}
		from, _ := slices.BinarySearch(all, min(n, limit)+1)
		for _, d := range slices.Backward(all[:from]) {
			if !reaches(d, k, n) {
				return // nor do smaller ones
			}
			if n%d == 0 {
				try(n/d, k-1, d, append(sofar, d))
			}
		}
	}
	for _, d := range all {
		if d >= prime && reaches(d, k, n) && best == nil {
			try(n/d, k-1, d, []int{d})
		}
	}
	return best
}

// divisors returns the divisors of n in ascending order, and its largest prime factor, or 1.
func divisors(n int) (all []int, prime int) {
	all, prime = []int{1}, 1
	for p := 2; n > 1; {
		if p > n/p {
			p = n // a prime
		}
		if n%p != 0 {
			p++
			continue
		}
		for _, d := range all {
			all = append(all, d*p)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		n, prime = n/p, p
	}
	return all, prime
}

// reaches reports whether d to the power of k is n or more.
func reaches(d, k, n int) bool {
	for ; k > 0 && n > 1; k-- {
		n = (n-1)/d + 1
	}
	return n <= 1
}

// product returns the product of nonnegative numbers, or math.MaxInt if it is larger than that.
func product(f []int) int {
	p := 1
	for _, x := range f {
		if x != 0 && p > math.MaxInt/x {
			return math.MaxInt
		}
		p *= x
	}
	return p
}

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
