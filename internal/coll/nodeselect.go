package coll

import "github.com/cohort-hpc/cohort/backend"

// placedRule is one algorithm of a collective for ranks on several nodes.
type placedRule struct {
	rule
	when func(s shape) bool // nil: always
}

// placedRules is the selection for ranks on several nodes: of a collective's algorithms,
// the first whose need is met and whose condition holds is chosen. If there is none, rules
// apply.
var placedRules = [...]placedRule{
	{rule{backend.Barrier, "barrier/nodes", anything, nil, barrierNodes}, nil},
	{rule{backend.Bcast, "bcast/nodes-chain", anything, nil, bcastNodesChain}, longChain},
	{rule{backend.Bcast, "bcast/nodes", anything, nil, bcastNodes}, nil},
	{rule{backend.Reduce, "reduce/nodes", tree, nil, reduceNodes}, shortReduce},
	{rule{backend.Reduce, "reduce/rabenseifner", tree, nil, reduceRabenseifner}, nil},
	{rule{backend.Allreduce, "allreduce/nodes", tree, nil, allreduceNodes}, shortAllreduce},
	{rule{backend.Allreduce, "allreduce/rabenseifner", tree, nil, allreduceRabenseifner}, nil},
	{rule{backend.Allreduce, "allreduce/nodes-ring", ring, nil, allreduceNodesRing}, nil},
	{rule{backend.ReduceScatterBlock, "reduce_scatter_block/recursive-halving", tree, nil, reduceScatterHalving}, halvingCrossesLess},
	{rule{backend.ReduceScatter, "reduce_scatter/recursive-halving", tree, nil, reduceScatterHalving}, halvingCrossesLess},
	{rule{backend.Gather, "gather/nodes", anything, nil, gatherNodes}, fewBlocks},
	{rule{backend.Gather, "gather/binomial", anything, nil, gatherBinomial}, shortBlock},
	{rule{backend.Scatter, "scatter/nodes", anything, nil, scatterNodes}, fewBlocks},
	{rule{backend.Scatter, "scatter/binomial", anything, nil, scatterBinomial}, shortBlock},
	{rule{backend.Allgather, "allgather/nodes", anything, nil, allgatherNodes}, shortGather},
	{rule{backend.Allgather, "allgather/ring", anything, nil, allgatherRing}, longGather},
	{rule{backend.Allgather, "allgather/nodes-ring", anything, nil, allgatherNodesRing}, nil},
	{rule{backend.Allgatherv, "allgatherv/nodes", anything, nil, allgatherNodes}, shortGather},
	{rule{backend.Allgatherv, "allgatherv/ring", anything, nil, allgathervRing}, longGather},
	{rule{backend.Allgatherv, "allgatherv/nodes-ring", anything, nil, allgatherNodesRing}, nil},
	{rule{backend.Alltoall, "alltoall/nodes", anything, nil, alltoallNodes}, fewNodes},
	{rule{backend.Alltoall, "alltoall/bruck", anything, nil, alltoallBruck}, shortBlocks},
	{rule{backend.Alltoall, "alltoall/spread", anything, nil, alltoallSpread}, nil},
}

// leaders returns the shape of a collective of the nodes' leaders, and members that of the largest node.
func (s shape) leaders() shape {
	s.n = s.nodes.Size()
	return s
}

func (s shape) members() shape {
	s.n, s.link = s.nodes.largest, s.near
	return s
}

func costBcastNodes(s shape) int64 {
	return s.leaders().best(backend.Bcast) + s.members().best(backend.Bcast)
}

// costNodesChain: the segments follow each other at the pace of the far link.
func costNodesChain(s shape) int64 {
	piece := int64(min(s.bytes, s.segment))
	inside := s.members()
	return costBcastChain(s.leaders()) + int64(s.n-s.nodes.Size())*inside.cost(1, piece, 0, 0)
}

func longChain(s shape) bool { return costNodesChain(s) < costBcastNodes(s) }

// costReduceNodes: values of whole vectors inside the nodes, and then across; an allreduce sends the result
// back to the ranks.
func costReduceNodes(s shape) int64 {
	return costReduceBinomial(s.leaders()) + costReduceBinomial(s.members())
}

func costAllreduceNodes(s shape) int64 {
	return costReduceNodes(s) + costBcastBinomial(s.members())
}

// costHalves: Rabenseifner's algorithm exchanges halves first inside the nodes. So does what folds the ranks
// to a power of two.
func costHalves(s shape) int64 {
	outside := s.leaders()
	part := int64(s.bytes - s.bytes/outside.n)
	return outside.cost(2*outside.log(), 2*part, part, 0) + costRabenseifner(s.members())
}

func shortReduce(s shape) bool { return costReduceNodes(s) <= costHalves(s) }

// shortAllreduce: all ranks of a node send across at once, where a reduce has ever fewer.
func shortAllreduce(s shape) bool {
	return costAllreduceNodes(s) <= costHalves(s)+s.across(1, 0)
}

// halvingCrossesLess: recursive halving sends fewer bytes of a long vector across than the
// pairwise exchange.
func halvingCrossesLess(s shape) bool { return s.nodes.halving < s.nodes.pairwise }

// costBlocksNodes: the root exchanges the blocks of a node with each leader.
func costBlocksNodes(s shape) int64 {
	inside := s.members()
	k := int64(inside.n)
	return s.cost(1, k*int64(s.bytes), 0, 0) + s.posts(int64(s.nodes.Size()-2), k*int64(s.bytes)) +
		inside.cost(1, 0, 0, 0) + inside.posts(k-1, int64(s.bytes))
}

// costBlocksStraight: blocks go from rank to rank.
func costBlocksStraight(s shape) int64 {
	return s.cost(1, int64(s.bytes), 0, 0) + s.posts(int64(s.n-s.nodes.largest-1), int64(s.bytes))
}

// costBlocksAlong: blocks go along a binomial tree, if its subtrees are nodes.
func costBlocksAlong(s shape) int64 {
	inside, outside := s.members(), s.leaders()
	outside.bytes *= inside.n
	return costBlocksBinomial(inside) + costBlocksBinomial(outside)
}

func fewBlocks(s shape) bool {
	least := min(costBlocksStraight(s), costBlocksAlong(s))
	return costBlocksNodes(s) <= least+least/32
}

func shortBlock(s shape) bool { return costBlocksAlong(s) <= costBlocksStraight(s) }

// costAllgatherNodes: the leaders' exchange, between collecting the blocks of a node and sending all to it.
func costAllgatherNodes(s shape) int64 {
	inside := s.members()
	return inside.posts(int64(inside.n-1), int64(s.bytes/s.n)) + costAllgatherBruck(s.leaders()) + inside.best(backend.Bcast)
}

// costNodesRing: all blocks in pieces around the ring, and along the chain in each node at the same time,
// the last of them after the ring.
func costNodesRing(s shape) int64 {
	inside, nodes := s.members(), int64(s.nodes.Size())
	step := max(s.segment, s.bytes/s.n)
	pieces := max(1, int64((s.bytes/int(nodes)+step-1)/step))
	piece := min(int64(s.bytes)/nodes, int64(step))
	return inside.posts(int64(inside.n-1), int64(s.bytes/s.n)) + s.cost((nodes-1)*pieces, (nodes-1)*pieces*piece, 0, 0) +
		inside.posts(pieces, piece) + inside.cost(int64(inside.n-1), int64(inside.n-1)*piece, 0, 0)
}

func shortGather(s shape) bool {
	return costAllgatherNodes(s) < min(costNodesRing(s), costRingAcross(s))
}

// costRingAcross returns the cost of a ring of all ranks node by node: most of its links are near, and far
// ones do not wait for each other.
func costRingAcross(s shape) int64 {
	inside := s.members()
	block := int64(s.bytes / s.n)
	return s.cost(int64(s.nodes.Size()), 0, 0, 0) + max(s.posts(int64(s.n-1), block)+int64(s.n-1)*16*int64(s.post)/2, inside.cost(int64(s.n-1), int64(s.n-1)*block, 0, 0))
}

func longGather(s shape) bool { return s.nodes.inOrder() && costRingAcross(s) < costNodesRing(s) }

// across returns the cost of what the ranks of a node send across in an all-to-all, with some messages of
// some bytes each.
func (s shape) across(messages, bytes int64) int64 {
	return messages * int64(s.nodes.largest) * max(16*int64(s.gap), bytes*int64(s.each))
}

// costBruckNodes: the first and the last ranks of a node send or receive across also while the others do not.
func costBruckNodes(s shape) int64 {
	inside, log := s.members(), s.leaders().log()
	half := int64(s.n/2) * int64(s.bytes)
	return inside.cost(inside.log(), inside.log()*half, 0, s.log()*half+2*half) + s.cost(log+1, 0, 0, log*half) + s.across(log, half)
}

func costSpreadNodes(s shape) int64 {
	inside := s.members()
	far := int64(s.n - inside.n)
	return costSpread(inside) + s.cost(1, 0, 0, 0) + max(2*s.posts(far, 0), s.across(far, int64(s.bytes)))
}

// shortBlocks: it costs less to pass blocks on than to send each across.
func shortBlocks(s shape) bool { return costBruckNodes(s) <= costSpreadNodes(s) }

// fewNodes: the nodes' messages to each other are no more than Bruck's algorithm sends across, and it pays
// to collect what they carry.
func fewNodes(s shape) bool {
	inside, n := s.members(), s.nodes.Size()
	k := int64(inside.n)
	all := k * int64(s.n) * int64(s.bytes)
	cost := 2*inside.cost(1, 0, 0, 2*all) + 2*inside.posts(k-1, all/k) + s.cost(1, 0, 0, 0) + 2*s.posts(int64(n-1), k*k*int64(s.bytes)/2)
	return n*(n-1) <= s.nodes.bruck && cost <= min(costBruckNodes(s), costSpreadNodes(s))
}
