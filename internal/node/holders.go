package node

import (
	"fmt"

	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// holders says which ranks may use the rings of a pair that was made on demand:
//
//	from     event                                               to
//	free     a rank offers the rings to another (offer)          offered
//	offered  the other rank takes them (take)                    shared
//	offered  the first rank is done before that (leave)          free
//	shared   one of the two is done (leave)                      left
//	left     the other one is done too (leave)                   free
//
// Each return to free begins another generation, which an offer names: one that was taken back cannot be taken any more.
//
// Invariant: from offered to free, only the rank that offered the rings and the one that has taken them touch them. A rank
// that dies keeps its rings.
type holders struct{ word word.Uint32 } // the generation, and in the last two bits the state

// The states.
const (
	pairFree uint32 = iota
	pairOffered
	pairShared
	pairLeft
	pairState = 3
)

// Offer names rings for two ranks.
type Offer struct {
	Pair       int
	Generation uint32
}

// offer offers rings that are free.
func (h *holders) offer() (generation uint32, ok bool) {
	w := h.word.Load()
	return w >> 2, w&pairState == pairFree && h.word.CompareAndSwap(w, w+pairOffered)
}

// take takes what another rank has offered.
func (h *holders) take(generation uint32) bool {
	offered := generation<<2 | pairOffered
	return h.word.CompareAndSwap(offered, offered-pairOffered+pairShared)
}

// leave says that the calling rank, which has offered or taken the rings, does not use them any more.
func (h *holders) leave() {
	for {
		w := h.word.Load()
		next := (w>>2 + 1) << 2 // free
		if w&pairState == pairShared {
			next = w - pairShared + pairLeft
		}
		if h.word.CompareAndSwap(w, next) {
			return
		}
	}
}

func (n *Node) holders(pair int) *holders {
	return shmem.At[holders](n.seg, n.l.holders+4*pair)
}

// NewPair allocates rings for this rank and another one, which gets the offer and takes it. Each of the two calls LinkAt,
// and GiveBack in the end.
func (n *Node) NewPair() (Offer, error) {
	for pair := range n.l.pairs {
		generation, ok := n.holders(pair).offer()
		if !ok {
			continue
		}
		o := Offer{pair, generation}
		err := n.allocate(pair)
		if err != nil {
			n.GiveBack(o)
		} else if generation > 0 {
			clear(shmem.Slice[byte](n.seg, n.l.pair(pair), n.l.pairSize()))
		}
		return o, err
	}
	return Offer{}, fmt.Errorf("the %d ranks of the node have no more rings", n.l.n)
}

// Take takes the offer of another rank.
func (n *Node) Take(o Offer) error {
	if o.Pair < 0 || o.Pair >= n.l.pairs {
		return fmt.Errorf("pair %d of %d", o.Pair, n.l.pairs)
	}
	if !n.holders(o.Pair).take(o.Generation) {
		return fmt.Errorf("the rings of pair %d were taken back", o.Pair)
	}
	return nil
}

// LinkAt returns this rank's end of a link over rings that it has offered or taken.
func (n *Node) LinkAt(peer int, o Offer) *memlink.Link { return n.link(peer, o.Pair, nil) }

// GiveBack says that this rank does not use the rings any more, which it has offered or taken.
func (n *Node) GiveBack(o Offer) { n.holders(o.Pair).leave() }
