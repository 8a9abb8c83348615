package coll

import "github.com/cohort-hpc/cohort/backend"

// limits are the lengths at which another algorithm takes over, in bytes unless a comment
// says otherwise. Unless another source is named they are from Thakur, Rabenseifner,
// Gropp: Optimization of collective communication operations in MPICH, 2005, who measured
// them for each collective.
type limits struct {
	bcastShort int // below: binomial tree (section 4.2)
	bcastFew   int // ranks; below: binomial tree too
	bcastLong  int // from here: ring instead of recursive doubling
	segment    int // what a chain passes on at a time

	reduceShort int // up to here: whole vectors
	scatterLong int // from here: pairwise reduce-scatter (section 4.4)
	ringChunk   int // per rank, from here: ring order, see Order

	allgatherShort int // below: Bruck if n is not a power of two (section 4.1)
	allgatherLong  int // from here: ring
	alltoallShort  int // blocks up to here: Bruck (section 4.3)
	alltoallFew    int // ranks; below: not Bruck
	alltoallLong   int // blocks above: one partner at a time
	window         int // distances at a time otherwise, two partners each: as MPICH throttles itself
	gatherLong     int // blocks from here: straight to and from the root (Open MPI's fixed decision)
}

var defaults = limits{
	bcastShort:     12 << 10,
	bcastFew:       8,
	bcastLong:      512 << 10,
	segment:        64 << 10,
	reduceShort:    2 << 10,
	scatterLong:    512 << 10,
	ringChunk:      ringChunk,
	allgatherShort: 80 << 10,
	allgatherLong:  512 << 10,
	alltoallShort:  256,
	alltoallFew:    8,
	alltoallLong:   32 << 10,
	window:         16,
	gatherLong:     6000,
}

// shape has the properties by which an algorithm is chosen. It is the same on all ranks,
// because it depends only on the number of ranks and the fingerprint.
type shape struct {
	n     int
	count int // elements of the vector, or of one block
	bytes int // of the vector; of one block for gather, scatter and alltoall; of all blocks for allgather
	order Order
	nodes *Nodes
	*limits
}

// rule is one algorithm of a collective.
type rule struct {
	coll  backend.Coll
	name  string
	needs need
	when  func(s shape) bool // nil: always
	build func(b *builder)
}

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

// rules is the selection: of a collective's algorithms, the first whose need is met and
// whose condition holds is chosen. A single rank has no algorithm.
var rules = [...]rule{
	{backend.Barrier, "barrier/dissemination", anything, nil, barrierDissemination},

	{backend.Bcast, "bcast/binomial", anything, func(s shape) bool { return s.bytes < s.bcastShort || s.n == 2 }, bcastBinomial},
	{backend.Bcast, "bcast/chain", anything, longChain, bcastChain},
	{backend.Bcast, "bcast/binomial", anything, func(s shape) bool { return s.n < s.bcastFew }, bcastBinomial},
	{backend.Bcast, "bcast/scatter-doubling", pow2, func(s shape) bool { return s.bytes < s.bcastLong }, bcastScatterDoubling},
	{backend.Bcast, "bcast/scatter-ring", anything, nil, bcastScatterRing},

	{backend.Reduce, "reduce/binomial", tree, shortVector, reduceBinomial},
	{backend.Reduce, "reduce/rabenseifner", tree, nil, reduceRabenseifner},
	{backend.Reduce, "reduce/ring", ring, nil, reduceRing},

	{backend.Allreduce, "allreduce/recursive-doubling", tree, shortVector, allreduceDoubling},
	{backend.Allreduce, "allreduce/rabenseifner", tree, nil, allreduceRabenseifner},
	{backend.Allreduce, "allreduce/ring", ring, nil, allreduceRing},

	{backend.ReduceScatterBlock, "reduce_scatter_block/recursive-halving", tree, mediumVector, reduceScatterHalving},
	{backend.ReduceScatterBlock, "reduce_scatter_block/pairwise", tree, nil, reduceScatterPairwise},
	{backend.ReduceScatterBlock, "reduce_scatter_block/ring", ring, nil, reduceScatterRing},

	{backend.ReduceScatter, "reduce_scatter/recursive-halving", tree, mediumVector, reduceScatterHalving},
	{backend.ReduceScatter, "reduce_scatter/pairwise", tree, nil, reduceScatterPairwise},
	{backend.ReduceScatter, "reduce_scatter/ring", ring, nil, reduceScatterRing},

	{backend.Gather, "gather/binomial", anything, shortBlock, gatherBinomial},
	{backend.Gather, "gather/linear", anything, nil, gatherLinear},
	{backend.Gatherv, "gatherv/linear", anything, nil, gathervLinear},
	{backend.Scatter, "scatter/binomial", anything, shortBlock, scatterBinomial},
	{backend.Scatter, "scatter/linear", anything, nil, scatterLinear},
	{backend.Scatterv, "scatterv/linear", anything, nil, scattervLinear},

	{backend.Allgather, "allgather/recursive-doubling", pow2, func(s shape) bool { return s.bytes < s.allgatherLong }, allgatherDoubling},
	{backend.Allgather, "allgather/bruck", anything, func(s shape) bool { return s.bytes < s.allgatherShort }, allgatherBruck},
	{backend.Allgather, "allgather/ring", anything, nil, allgatherRing},
	{backend.Allgatherv, "allgatherv/bruck", anything, func(s shape) bool { return s.bytes < s.allgatherShort }, allgathervBruck},
	{backend.Allgatherv, "allgatherv/ring", anything, nil, allgathervRing},

	{backend.Alltoall, "alltoall/bruck", anything, func(s shape) bool { return s.bytes <= s.alltoallShort && s.n >= s.alltoallFew }, alltoallBruck},
	{backend.Alltoall, "alltoall/spread", anything, func(s shape) bool { return s.bytes <= s.alltoallLong }, alltoallSpread},
	{backend.Alltoall, "alltoall/pairwise", anything, nil, alltoallPairwise},
	{backend.Alltoallv, "alltoallv/spread", anything, nil, alltoallvSpread},

	{backend.Scan, "scan/recursive-doubling", anything, nil, scanDoubling},
	{backend.Exscan, "exscan/recursive-doubling", anything, nil, exscanDoubling},
}

// shortVector: not worth splitting, or with too few elements for all ranks.
func shortVector(s shape) bool { return s.bytes <= s.reduceShort || s.count < floorPow2(s.n) }

func mediumVector(s shape) bool { return s.bytes < s.scatterLong }

// longChain: a chain of n ranks takes n-2 more steps than there are segments, and the
// scatter and ring move the vector nearly twice. With two segments per rank the chain is
// faster for any n.
func longChain(s shape) bool { return s.bytes >= s.bcastLong && s.bytes >= 2*s.n*s.segment }

func shortBlock(s shape) bool { return s.bytes < s.gatherLong }
