package backend

import "encoding/binary"

// CheckTag and DataTag are the tags of the messages that the seq-th collective
// of a communicator sends when it runs as a schedule: fingerprints under the
// one, data under the other. Sequence numbers count all collectives of the
// communicator, whatever their form and however they run, so that ranks that
// make the same calls agree on them. They repeat after 2^29 collectives.
//
// The tags below these belong to persistent collectives ([PersistentTag]) and to
// the making of communicators; see package cohort.
func CheckTag(seq uint32) int { return -2 - 2*int(seq%(1<<29)) }

// DataTag is the tag of the seq-th collective's data.
func DataTag(seq uint32) int { return CheckTag(seq) - 1 }

// PersistentTag is CheckTag for the i-th persistent collective of a
// communicator, which keeps its tags as long as it lives; the data tag is one
// below. Their space is not shared with the others.
func PersistentTag(i uint32) int { return -2 - 1<<30 - 2*int(i%(1<<28)) }

// Seen is what a rank has heard of the fingerprints of one collective: that of
// the lowest rank heard from, and that of the lowest one that differs from it.
// Merging what all ranks have gives the same Seen on all, in whatever order, so
// that all return the same mismatch.
type Seen struct {
	Rank  int // lowest rank heard from
	Print Fingerprint
	Other int // lowest rank with another fingerprint, -1 for none
	Diff  Fingerprint

	// Bounded: a rank heard from can end its call early (its Bound is Limited).
	// It is not part of what must be equal.
	Bounded bool
}

// SeenSize is the length of an encoded Seen in bytes.
const SeenSize = 16 + 2*FingerprintSize

// See returns what a rank knows at first: its own fingerprint.
func See(rank int, f Fingerprint) Seen { return Seen{Rank: rank, Print: f, Other: -1} }

// Merge adds what another rank has seen.
func (s *Seen) Merge(o Seen) {
	bounded := s.Bounded || o.Bounded
	if o.Rank < s.Rank {
		*s, o = o, *s
	}
	// s.Rank is the lowest of both. The lowest that differs from it is one of
	// these three, since o.Rank is the lowest of its side.
	s.differs(o.Rank, o.Print)
	if o.Other >= 0 {
		s.differs(o.Other, o.Diff)
	}
	s.Bounded = bounded
}

func (s *Seen) differs(rank int, f Fingerprint) {
	if f != s.Print && (s.Other < 0 || rank < s.Other) {
		s.Other, s.Diff = rank, f
	}
}

// Err returns the Mismatch of what has been seen, nil if all are equal.
func (s *Seen) Err() error {
	if s.Other < 0 {
		return nil
	}
	return Mismatch(s.Rank, s.Print, s.Other, s.Diff)
}

// boundedBit of the first word is Bounded: the top bit, which no rank has.
const boundedBit = 1 << 63

// Encode writes s into b, which has SeenSize bytes.
func (s *Seen) Encode(b []byte) {
	_ = b[SeenSize-1]
	le := binary.LittleEndian
	first := uint64(s.Rank)
	if s.Bounded {
		first |= boundedBit
	}
	le.PutUint64(b, first)
	le.PutUint64(b[8:], uint64(s.Other))
	for i, w := range s.Print.Words() {
		le.PutUint64(b[16+8*i:], w)
	}
	for i, w := range s.Diff.Words() {
		le.PutUint64(b[16+FingerprintSize+8*i:], w)
	}
}

// DecodeSeen is the inverse of Encode. It returns false if b has not SeenSize
// bytes or ranks that are not among size ones.
func DecodeSeen(b []byte, size int) (Seen, bool) {
	if len(b) != SeenSize {
		return Seen{}, false
	}
	le := binary.LittleEndian
	first := le.Uint64(b)
	s := Seen{Rank: int(first &^ boundedBit), Other: int(le.Uint64(b[8:])), Bounded: first&boundedBit != 0}
	if s.Rank < 0 || s.Rank >= size || s.Other < -1 || s.Other >= size {
		return Seen{}, false
	}
	var w [2][3]uint64
	for i := range 3 {
		w[0][i] = le.Uint64(b[16+8*i:])
		w[1][i] = le.Uint64(b[16+FingerprintSize+8*i:])
	}
	s.Print, s.Diff = FromWords(w[0]), FromWords(w[1])
	return s, true
}
