package shm

import "github.com/cohort-hpc/cohort/backend"

// peers is access to the other ranks' data during a collective.
type peers struct {
	s    *collective
	data []byte // of this rank, on its board
}

// post puts this rank's data on its board if they are few.
func (p *peers) post(to *post, call *backend.Call) {
	if call.Err != nil {
		return
	}
	b := call.Send
	if call.InPlace || call.Coll == backend.Bcast {
		b = call.Recv
	}
	switch {
	case len(b) <= len(to.small):
		copy(to.small[:], b)
	case len(b) <= boardData:
		copy(to.data[:], b)
	}
}

func (p *peers) on(r, n int) []byte {
	b := &p.s.c.boards[r].post[p.s.turn]
	if n <= len(b.small) {
		return b.small[:n]
	}
	return b.data[:n]
}

// complete does this rank's part once all ranks make the same call.
func (p *peers) complete(b *backend.Bound, call *backend.Call) (bool, error) {
	c := p.s.c
	switch call.Coll {
	case backend.Barrier:
		return true, nil
	case backend.Allreduce:
		n := len(call.Recv)
		if n > boardData {
			return false, nil
		}
		if len(c.world) == 2 {
			call.Op.Apply(call.Recv, p.on(0, n), p.on(1, n))
			return true, nil
		}
	}
	return false, nil
}
