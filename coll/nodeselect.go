package coll

import "github.com/cohort-hpc/cohort/backend"

// placedRules is the selection for ranks on several nodes: of a collective's algorithms,
// the first whose need is met and whose condition holds is chosen. If there is none, rules
// apply.
var placedRules = [...]rule{
	{backend.Barrier, "barrier/nodes", anything, nil, barrierNodes},
	{backend.Bcast, "bcast/nodes-chain", anything, longChain, bcastNodesChain},
	{backend.Bcast, "bcast/nodes", anything, nil, bcastNodes},
	{backend.Reduce, "reduce/nodes", tree, shortVector, reduceNodes},
	{backend.Allreduce, "allreduce/nodes", tree, shortVector, allreduceNodes},
	{backend.Allreduce, "allreduce/nodes-ring", ring, nil, allreduceNodesRing},
	{backend.ReduceScatterBlock, "reduce_scatter_block/recursive-halving", tree, halvingCrossesLess, reduceScatterHalving},
	{backend.ReduceScatter, "reduce_scatter/recursive-halving", tree, halvingCrossesLess, reduceScatterHalving},
	{backend.Gather, "gather/nodes", anything, shortBlock, gatherNodes},
	{backend.Scatter, "scatter/nodes", anything, shortBlock, scatterNodes},
	{backend.Allgather, "allgather/nodes", anything, shortGather, allgatherNodes},
	{backend.Allgather, "allgather/nodes-ring", anything, nil, allgatherNodesRing},
	{backend.Allgatherv, "allgatherv/nodes", anything, shortGather, allgatherNodes},
	{backend.Allgatherv, "allgatherv/nodes-ring", anything, nil, allgatherNodesRing},
	{backend.Alltoall, "alltoall/nodes", anything, fewNodes, alltoallNodes},
}

func shortGather(s shape) bool { return s.bytes < s.allgatherShort }

// halvingCrossesLess: recursive halving sends fewer bytes of a long vector across than the
// pairwise exchange.
func halvingCrossesLess(s shape) bool { return isPow2(s.n) && s.nodes.halving < s.nodes.pairwise }

// fewNodes: blocks so short that they are passed on anyway, and so few nodes that their
// messages to each other are no more than Bruck's algorithm sends across.
func fewNodes(s shape) bool {
	n := s.nodes.Size()
	return s.bytes <= s.alltoallShort && n*(n-1) <= s.nodes.bruck
}
