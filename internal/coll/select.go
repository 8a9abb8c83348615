package coll

import (
	"math"
	"math/bits"

	"github.com/cohort-hpc/cohort/backend"
)

// limits are what the algorithms are chosen by, and the lengths of pieces, in bytes unless a comment says
// otherwise.
//
// The costs are those of a network of 25 Gb/s with TCP: 12 µs for a message, 0.4 ns for a byte. A choice is
// about right on other networks too, because it depends only on the ratio of the two; see
// docs/algorithms.md.
type limits struct {
	far, near link // between the ranks; between those of one node
	copy      int  // sixteenths of the time of a byte on the far link: what copying a byte takes
	reduce    int  // and reducing one

	segment   int // what a chain passes on at a time
	ringChunk int // per rank, from here: ring order, see Order
	window    int // distances at a time, two partners each: as MPICH throttles itself
}

// link has the costs of messages.
type link struct {
	start int // how many bytes on the far link take as long as an empty message
	post  int // the same for a message's part on one rank: what the next one waits
	gap   int // the same for a message's part in the network port that the ranks of a node share
	each  int // of a byte, in sixteenths of one on the far link
	cpu   int // the same for the processor time of a byte on one rank
}

var defaults = limits{
	far:       link{start: 30 << 10, post: 7680, gap: 512, each: 16, cpu: 6},
	near:      link{start: 1536, post: 256, each: 4, cpu: 4},
	copy:      4,
	reduce:    6,
	segment:   64 << 10,
	ringChunk: ringChunk,
	window:    16,
}

// shape has the properties by which an algorithm is chosen. It is the same on all ranks,
// because it depends only on the number of ranks and the fingerprint.
type shape struct {
	n     int
	count int // elements of the vector, or of one block
	bytes int // of the vector; of one block for gather, scatter and alltoall; of all blocks for allgather
	order Order
	nodes *Nodes
	link
	*limits
}

// rule is one algorithm of a collective.
type rule struct {
	coll  backend.Coll
	name  string
	needs need
	cost  func(s shape) int64 // about how long it takes; nil: the collective has no other
	build func(b *builder)
}

// fits reports whether the rule is one of a collective, and its needs are met.
func (r *rule) fits(c backend.Coll, s shape) bool { return r.coll == c && r.needs.met(s) }

// need is what an algorithm requires, whatever the lengths.
type need uint8

const (
	anything need = iota
	pow2          // a power of two of ranks
	tree          // tree order
	ring          // ring order
)

func (n need) met(s shape) bool {
	switch n {
	case pow2:
		return isPow2(s.n)
	case tree:
		return !s.order.Ring()
	case ring:
		return s.order.Ring()
	}
	return true
}

// rules are the algorithms. Of those of a collective whose needs are met the one with the least cost is
// chosen, or one before it that costs little more: an algorithm comes first if its messages go to
// neighbors, or if it needs less memory. A single rank has no algorithm.
var rules = [...]rule{
	{backend.Barrier, "barrier/dissemination", anything, nil, barrierDissemination},

	{backend.Bcast, "bcast/binomial", anything, costBcastBinomial, bcastBinomial},
	{backend.Bcast, "bcast/chain", anything, costBcastChain, bcastChain},
	{backend.Bcast, "bcast/scatter-ring", anything, costScatterRing, bcastScatterRing},
	{backend.Bcast, "bcast/scatter-doubling", pow2, costScatterDoubling, bcastScatterDoubling},

	{backend.Reduce, "reduce/binomial", tree, costReduceBinomial, reduceBinomial},
	{backend.Reduce, "reduce/rabenseifner", tree, costReduceRabenseifner, reduceRabenseifner},
	{backend.Reduce, "reduce/ring", ring, nil, reduceRing},

	{backend.Allreduce, "allreduce/recursive-doubling", tree, costDoubling, allreduceDoubling},
	{backend.Allreduce, "allreduce/rabenseifner", tree, costRabenseifner, allreduceRabenseifner},
	{backend.Allreduce, "allreduce/ring", ring, nil, allreduceRing},

	{backend.ReduceScatterBlock, "reduce_scatter_block/pairwise", tree, costPairwise, reduceScatterPairwise},
	{backend.ReduceScatterBlock, "reduce_scatter_block/recursive-halving", tree, costHalving, reduceScatterHalving},
	{backend.ReduceScatterBlock, "reduce_scatter_block/ring", ring, nil, reduceScatterRing},

	{backend.ReduceScatter, "reduce_scatter/pairwise", tree, costPairwise, reduceScatterPairwise},
	{backend.ReduceScatter, "reduce_scatter/recursive-halving", tree, costHalving, reduceScatterHalving},
	{backend.ReduceScatter, "reduce_scatter/ring", ring, nil, reduceScatterRing},

	{backend.Gather, "gather/linear", anything, costLinear, gatherLinear},
	{backend.Gather, "gather/binomial", anything, costBlocksBinomial, gatherBinomial},
	{backend.Gatherv, "gatherv/linear", anything, nil, gathervLinear},
	{backend.Scatter, "scatter/linear", anything, costLinear, scatterLinear},
	{backend.Scatter, "scatter/binomial", anything, costBlocksBinomial, scatterBinomial},
	{backend.Scatterv, "scatterv/linear", anything, nil, scattervLinear},

	{backend.Allgather, "allgather/ring", anything, costAllgatherRing, allgatherRing},
	{backend.Allgather, "allgather/recursive-doubling", pow2, costAllgatherDoubling, allgatherDoubling},
	{backend.Allgather, "allgather/bruck", anything, costAllgatherBruck, allgatherBruck},
	{backend.Allgatherv, "allgatherv/ring", anything, costAllgatherRing, allgathervRing},
	{backend.Allgatherv, "allgatherv/bruck", anything, costAllgatherBruck, allgathervBruck},

	{backend.Alltoall, "alltoall/pairwise", anything, costAlltoallPairwise, alltoallPairwise},
	{backend.Alltoall, "alltoall/spread", anything, costSpread, alltoallSpread},
	{backend.Alltoall, "alltoall/bruck", anything, costAlltoallBruck, alltoallBruck},
	{backend.Alltoallv, "alltoallv/spread", anything, nil, alltoallvSpread},

	{backend.Scan, "scan/recursive-doubling", anything, nil, scanDoubling},
	{backend.Exscan, "exscan/recursive-doubling", anything, nil, exscanDoubling},

	{backend.NeighborAllgather, "neighbor/linear", anything, nil, neighborLinear},
	{backend.NeighborAllgatherv, "neighbor/linear", anything, nil, neighborLinear},
	{backend.NeighborAlltoall, "neighbor/linear", anything, nil, neighborLinear},
	{backend.NeighborAlltoallv, "neighbor/linear", anything, nil, neighborLinear},
}

// choose returns the rule of a collective's algorithm without nodes.
func choose(c backend.Coll, s shape) *rule {
	least := int64(math.MaxInt64)
	for i := range rules {
		if r := &rules[i]; r.fits(c, s) {
			if r.cost == nil {
				return r
			}
			least = min(least, r.cost(s))
		}
	}
	for i := range rules {
		if r := &rules[i]; r.fits(c, s) && r.cost(s) <= least+least/32 {
			return r
		}
	}
	return nil
}

// best returns the least cost of a collective without nodes.
func (s shape) best(c backend.Coll) int64 { return choose(c, s).cost(s) }

// cost returns the time of a number of messages in sequence with the bytes of all of them, and of what is
// reduced and copied in between, in sixteenths of the time of a byte on the far link. It is in
// integers, so that all ranks choose alike on every processor.
func (s shape) cost(messages, bytes, reduced, copied int64) int64 {
	return 16*messages*int64(s.start) + bytes*int64(s.each) + reduced*int64(s.reduce) + copied*int64(s.copy)
}

// posts returns the cost of messages that one rank sends, or receives, one after the other.
func (s shape) posts(messages, bytes int64) int64 {
	return messages * max(16*int64(s.post)+bytes*int64(s.each)/2, bytes*int64(s.each))
}

// exchange returns the cost of bytes that a rank sends while it receives as many.
func (s shape) exchange(bytes int64) int64 { return bytes * int64(max(s.each, 2*s.cpu)) }

// log returns the logarithm of the number of ranks, rounded up.
func (s shape) log() int64 { return int64(bits.Len(uint(s.n - 1))) }

// fold is for algorithms in which a power of two of ranks takes part. It returns its logarithm, how many
// messages come on top in sequence for ranks that are folded in pairs, 1 if there are such, else 0, and
// what has been sent when m bytes have been halved down to one part.
//
// The pair's second message, with the result, is not on the longest path if fewer than half of the ranks
// that take part stand for two: they are ahead of those whose partners were late.
func (s shape) fold() (log, trips, rest, bytes int64) {
	m := int64(s.bytes)
	p := floorPow2(s.n)
	switch rem := s.n - p; {
	case rem >= p/2 && rem > 0:
		trips, rest = 2, 1
	case rem > 0:
		trips, rest = 1, 1
	}
	return int64(bits.Len(uint(p)) - 1), trips, rest, m - m/int64(p)
}

// depth returns how many edges a binomial tree has from the root to the farthest rank.
func (s shape) depth() int64 { return int64(bits.Len(uint(s.n)) - 1) }

func costBcastBinomial(s shape) int64 {
	m := int64(s.bytes)
	return s.cost(s.depth(), s.depth()*m, 0, 0) + s.posts(s.log()-s.depth(), m)
}

// costBcastChain: the first segment goes all the way, and the others follow.
func costBcastChain(s shape) int64 {
	piece := int64(min(s.bytes, s.segment))
	last := int64(s.n - 1)
	segments := int64((s.bytes + s.segment - 1) / s.segment)
	return s.cost(last, last*piece, 0, 0) + (segments-1)*max(16*int64(s.post)+piece*int64(s.each), 2*(16*int64(s.post)+piece*int64(s.cpu)))
}

func costScatterRing(s shape) int64 {
	n, m := int64(s.n), int64(s.bytes)
	return s.cost((s.depth()+1)/2+n-2, m-m/n, 0, 0) + s.exchange(m-m/n) // the ring begins before the scatter has ended
}

func costScatterDoubling(s shape) int64 {
	n, m := int64(s.n), int64(s.bytes)
	return s.cost(2*s.log(), m-m/n, 0, 0) + s.exchange(m-m/n)
}

func costReduceBinomial(s shape) int64 {
	all := s.log() * int64(s.bytes)
	return s.cost(s.log(), all, all, 0)
}

func costReduceRabenseifner(s shape) int64 {
	log, _, rest, part := s.fold()
	m := rest * int64(s.bytes)
	return s.few(s.cost(2*log+rest, 2*part+m, part+m, 0))
}

func costDoubling(s shape) int64 {
	log, trips, rest, _ := s.fold()
	m := int64(s.bytes)
	return s.cost(log+trips, (log+trips)*m, (log+rest)*m, 0)
}

func costRabenseifner(s shape) int64 {
	log, trips, rest, part := s.fold()
	m := int64(s.bytes)
	return s.few(s.cost(2*log+trips, 2*part+trips*m, part+rest*m, 0))
}

// few adds to the cost of dividing a vector over the ranks if it has too few elements: some ranks have no
// part, and others wait for those that have.
func (s shape) few(cost int64) int64 {
	if s.count < floorPow2(s.n) {
		return cost + cost*3/10
	}
	return cost
}

func costHalving(s shape) int64 {
	log, trips, rest, part := s.fold()
	m := int64(s.bytes)
	copied := (1 - rest) * m // paired ranks reduce instead
	if s.n == 2 {
		copied = 0
	}
	return s.cost(log+trips, part+rest*(m+m/int64(s.n)), part+rest*m, copied)
}

// costPairwise: a rank combines operands when the tree order allows it. Others wait for one that has many
// to combine in a round, which adds about three quarters of all reductions.
func costPairwise(s shape) int64 {
	n, m := int64(s.n), int64(s.bytes)
	reduced := m - m/n
	if n > 2 {
		reduced = reduced * 7 / 4
	}
	return s.cost(n/2, m-m/n, reduced, 0) + (n-1)/2*16*int64(s.post)
}

func costLinear(s shape) int64 {
	return s.cost(1, int64(s.bytes), 0, 0) + s.posts(int64(s.n-2), int64(s.bytes))
}

func costBlocksBinomial(s shape) int64 {
	return s.cost(s.depth(), int64(s.n-1)*int64(s.bytes), 0, 0) + s.posts(s.log()-s.depth(), 0)
}

func costAllgatherRing(s shape) int64 { return s.cost(int64(s.n-1), int64(s.bytes-s.bytes/s.n), 0, 0) }

func costAllgatherDoubling(s shape) int64 { return s.cost(s.log(), int64(s.bytes-s.bytes/s.n), 0, 0) }

func costAllgatherBruck(s shape) int64 {
	return s.cost(s.log(), int64(s.bytes-s.bytes/s.n), 0, int64(s.bytes))
}

func costAlltoallPairwise(s shape) int64 {
	n := int64(s.n)
	return s.cost(n/2, (n-1)*int64(s.bytes), 0, 0) + (n-1)/2*16*int64(s.post)
}

// costSpread: a rank starts the messages of a round, and then takes those of the others, if they have come.
func costSpread(s shape) int64 {
	rounds := int64((s.n/2 + s.window - 1) / s.window)
	m := int64(s.bytes)
	each := (int64(s.n-1) + rounds - 1) / rounds
	side := 16*int64(s.post) + m*int64(s.cpu)
	return rounds * max(2*each*side, s.cost(1, m, 0, 0)+s.posts(each-1, m))
}

func costAlltoallBruck(s shape) int64 {
	all := s.log() * int64(s.n/2) * int64(s.bytes)
	return s.cost(s.log(), all, 0, all+int64(s.n)*int64(s.bytes))
}
