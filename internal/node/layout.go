package node

import (
	"math"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/internal/board"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	line = 64
	page = 4096

	rankAreaSize  = 5 * line // a test compares it with the compiler's
	mailboxesSize = 2 * memlink.MailboxSize
)

// control is the first page: what all ranks must agree on.
type control struct {
	noCMA   atomic.Uint32 // some rank cannot copy between processes
	verdict verdict
}

// A verdict says whether the ranks have joined. Rank 0 settles that the job starts, when all ranks have said yes. A rank
// that has said yes and hears nothing more from rank 0 settles that it gave up. The first one holds for all ranks: so
// either all start or none.
type verdict struct{ word word.Uint32 }

// The values of a verdict; rank r gave up: gaveUp + r.
const (
	undecided uint32 = iota
	started
	gaveUp
)

// settle decides, unless a rank has done it before, and returns what was decided.
func (v *verdict) settle(what uint32) uint32 {
	v.word.CompareAndSwap(undecided, what)
	return v.word.Load()
}

// rankArea is what a rank publishes about itself.
type rankArea struct {
	bell   wait.Bell   // on which the rank sleeps, or only announces that it does
	sleeps word.Uint32 // how often it has announced that, of sleeps that Config.Bell ends
	_      [116]byte
	cpus   [16]uint64
	who    shmem.Identity
	_      [32]byte
}

// layout holds the offsets in the segment of a node. The part before start is allocated when the segment
// is made, the rest when it is needed.
type layout struct {
	n     int
	data  int // bytes of each data ring
	pairs int // of ranks that can have rings

	ranks, board, mailboxes, holders, start, rings, more, size int
}

func newLayout(cfg *Config) layout {
	n := len(cfg.Ranks)
	l := layout{n: n, data: cfg.Data, pairs: n * (n - 1) / 2}
	if cfg.OnDemand {
		l.pairs = min(2*l.pairs, pairsEach*n) // a link may be made again
	}
	if l.data == 0 {
		l.data = dataSize(n, cfg.OnDemand)
	}
	at := int64(page)
	take := func(bytes int64) int {
		off := at
		at += (bytes + page - 1) &^ (page - 1)
		return int(min(off, math.MaxInt)) // and then the segment cannot be made
	}
	first, more := board.Size(n)
	l.ranks = take(int64(n) * rankAreaSize)
	l.board = take(first)
	if cfg.OnDemand {
		l.holders = take(int64(l.pairs) * 4)
	} else {
		l.mailboxes = take(int64(l.pairs) * mailboxesSize)
	}
	l.start = take(0)
	l.rings = take(int64(l.pairs) * int64(l.pairSize()))
	l.more = take(more)
	l.size = take(0)
	return l
}

const (
	ringMost  = 1 << 20
	ringsMost = 64 << 20 // bounds the data rings of a job of up to 128 ranks

	// The shortest data rings of ranks that all have some, and of those that make them on demand.
	ringLeast   = 4 << 10
	demandLeast = 32 << 10

	pairsEach = 64 // for each rank, on demand
)

// dataSize is the length of a data ring between two of n ranks: a MiB for a few, and less for many.
func dataSize(n int, onDemand bool) int {
	size, least := ringMost, ringLeast
	if onDemand {
		least = demandLeast
	}
	for size > least && n*(n-1) > ringsMost/size {
		size /= 2
	}
	return size
}

// pairSize is how much memory the rings of two ranks take.
func (l *layout) pairSize() int { return 2*memlink.Size(l.data) + mailboxesSize }

// pair returns the offset of the rings of two ranks.
func (l *layout) pair(i int) int { return l.rings + i*l.pairSize() }

// mailbox returns the offset of the mailboxes of two ranks. They come before the rings, unless these are made on demand.
func (l *layout) mailbox(i int) int {
	if l.mailboxes == 0 {
		return l.pair(i) + 2*memlink.Size(l.data)
	}
	return l.mailboxes + i*mailboxesSize
}

// pairOf numbers the pairs of ranks.
func pairOf(a, b int) int {
	low, high := min(a, b), max(a, b)
	return high*(high-1)/2 + low
}
