package memlink

import "github.com/cohort-hpc/cohort/internal/shmem"

// Two ranks that never talk have no rings. The memory of a pair is allocated when one of its ranks sends the first
// frame, or when both do at once, which has the same effect. Each rank has a door, a word that it alone writes and the
// other reads: the rings are made, the rank has left the job in good order, and how often its heart has beaten before it
// had rings.
//
//	apart → made (allocated, and then said at the own door)
//	      └→ made (heard at the other's door)
//
// While a rank is apart, the ring that it writes is full and the one that it reads is empty: both are none. So the fast
// paths ask nothing, and what they cannot do goes through Write and Read, which look at the doors.
//
// Invariant: a rank touches the rings only after it has allocated them or has heard from the other that it has. A rank
// that finds a ring empty after it has heard that the other has left, or ended, has read all frames.
const (
	doorMade = 1 << iota
	doorLeft
	doorBeat // and above: a count
)

// none is the ring of ranks that are apart. Nobody writes it.
var none ring

// Make gives the two ranks rings, if they have none.
func (l *Link) Make() error {
	if l.made {
		return nil
	}
	if err := l.cfg.Make(); err != nil {
		return err
	}
	l.open()
	l.cfg.Says.Or(doorMade)
	return nil
}

// open begins to use the rings.
func (l *Link) open() {
	l.made, l.out.tail = true, 0
	l.out.r, l.in.r = shmem.At[ring](l.cfg.Segment, l.cfg.Out), shmem.At[ring](l.cfg.Segment, l.cfg.In)
}
