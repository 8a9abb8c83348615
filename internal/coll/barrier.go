package coll

// barrierDissemination: in step k each rank sends a message to the rank 2^k above it. After
// the last step it has received one from every rank, directly or through others.
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
