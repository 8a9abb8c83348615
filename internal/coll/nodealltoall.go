package coll

// alltoallNodes: each rank sends its leader the blocks for other nodes. Every two leaders
// exchange all blocks between their nodes in one message each way, and distribute what they
// receive. Blocks within a node are sent directly.
//
//  1. Pack the blocks for other nodes, node by node, and give them to the leader;
//     exchange the others.
//  2. The leaders put together what goes to each other node, by source and
//     destination, and exchange it.
//  3. The leaders put together what belongs to each rank, by source, and give it to
//     the ranks, which put it in place.
func alltoallNodes(b *builder) {
	p := b.nodes
	mine := p.of[b.rank]
	node := p.members[mine]
	blk := b.c.Count * b.size
	var away []int // the ranks of other nodes, node by node
	for i, m := range p.members {
		if i != mine {
			away = append(away, m...)
		}
	}
	in := b.in()

	// 1.
	pack := b.temp(len(away) * blk)
	for i, r := range away {
		b.copy(pack.at(i*blk, blk), b.blocks(in, r, r+1))
	}
	b.round()
	if !b.c.InPlace {
		b.copy(b.blocks(Recv, b.rank, b.rank+1), b.blocks(Send, b.rank, b.rank+1))
	}
	for _, r := range node {
		if r == b.rank {
			continue
		}
		dst := b.blocks(Recv, r, r+1)
		if b.c.InPlace {
			dst = b.temp(blk)
			b.copy(b.blocks(Recv, r, r+1), dst)
		}
		b.recv(r, dst)
		b.send(r, b.blocks(in, r, r+1))
	}
	got := pack // what has come from away, by source
	if leader := node[0]; b.rank == leader {
		got = b.tradeAlltoall(pack)
	} else {
		b.send(leader, pack)
		b.round()
		b.recv(leader, got)
	}
	for i, r := range away {
		b.copy(b.blocks(Recv, r, r+1), got.at(i*blk, blk))
	}
	b.round()
}

// tradeAlltoall is a leader's part in alltoallNodes. Pack is what it sends to the
// ranks away itself; it returns what they send to it.
func (b *builder) tradeAlltoall(pack Region) Region {
	p := b.nodes
	mine := p.of[b.rank]
	node := p.members[mine]
	blk := b.c.Count * b.size
	packs := []Region{pack} // by rank of this node
	for _, r := range node[1:] {
		t := b.temp(pack.N)
		b.recv(r, t)
		packs = append(packs, t)
	}
	b.round()

	// 2.
	out := make([]Region, p.Size())
	at := 0 // where node i begins in away
	for i, m := range p.members {
		if i == mine {
			continue
		}
		out[i] = b.temp(len(node) * len(m) * blk)
		for j := range node {
			b.copy(out[i].at(j*len(m)*blk, len(m)*blk), packs[j].at(at*blk, len(m)*blk))
		}
		at += len(m)
	}
	b.round()
	from := make([]Region, p.Size())
	for i, m := range p.members {
		if i != mine {
			from[i] = b.temp(out[i].N)
			b.recv(m[0], from[i])
			b.send(m[0], out[i])
		}
	}
	b.round()

	// 3. The packed blocks have been sent.
	at = 0
	for i, m := range p.members {
		if i == mine {
			continue
		}
		for s := range m {
			for j := range node {
				b.copy(packs[j].at((at+s)*blk, blk), from[i].at((s*len(node)+j)*blk, blk))
			}
		}
		at += len(m)
	}
	b.round()
	for j, r := range node[1:] {
		b.send(r, packs[j+1])
	}
	return packs[0]
}
