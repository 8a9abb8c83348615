package coll

// barrierDissemination: in step k each rank tells the one 2^k above, so that
// after the last it has heard, through others, from all.
//
// Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988.
func barrierDissemination(b *builder) {
	b.empty = true
	for d := 1; d < b.n; d *= 2 {
		b.recv(mod(b.rank-d, b.n), Region{})
		b.send(mod(b.rank+d, b.n), Region{})
		b.round()
	}
}
