package backend

import "encoding/binary"

// CheckTag returns the tag under which the seq-th collective of a communicator
// sends fingerprints when it runs as a schedule; [DataTag] returns that of its
// data. All collectives of a communicator are counted, in every form and however
// they run, so ranks that make the same calls use the same tags. The tags repeat
// after 2^29 collectives.
//
// The tags below these belong to persistent collectives ([PersistentTag]) and to CreateGroup ([GroupTag]).
func CheckTag(seq uint32) int { return -2 - 2*int(seq%(1<<29)) }

// DataTag returns the tag of the seq-th collective's data; see [CheckTag].
func DataTag(seq uint32) int { return CheckTag(seq) - 1 }

// PersistentTag returns the check tag of the i-th persistent collective of a
// communicator, which keeps it for its whole life. Its data tag is one below. No
// other collective uses these tags.
func PersistentTag(i uint32) int { return -2 - 1<<30 - 2*int(i%(1<<28)) }

// GroupTag returns the tag of the messages of a CreateGroup, whose own tag is at most [MostGroupTag] of the backend's
// largest. It is below the tags of all collectives, and another for each tag: two calls at the same time never share one.
func GroupTag(tag int) int { return -2 - 3<<29 - tag }

// MostGroupTag returns the largest tag of a CreateGroup over a backend whose largest tag is most.
func MostGroupTag(most uint) uint { return most / 16 }

// Seen summarizes the fingerprints of one collective that a rank has seen: that
// of the lowest rank, and that of the lowest rank whose fingerprint differs from
// it. Merging the Seen of all ranks gives the same result in any order, so all
// ranks return the same mismatch.
type Seen struct {
	Rank  int // lowest rank seen
	Print Fingerprint
	Other int // lowest rank with another fingerprint, -1 for none
	Diff  Fingerprint

	// Bounded reports that one of the ranks seen can end its call early: its Bound
	// is Limited. It need not be equal on all ranks.
	Bounded bool
}

// SeenSize is the length of an encoded Seen in bytes.
const SeenSize = 16 + 2*FingerprintSize

// See returns the Seen that a rank starts with: its own fingerprint.
func See(rank int, f Fingerprint) Seen { return Seen{Rank: rank, Print: f, Other: -1} }

// Merge adds what another rank has seen.
func (s *Seen) Merge(o Seen) {
	bounded := s.Bounded || o.Bounded
	if o.Rank < s.Rank {
		*s, o = o, *s
	}
	// s.Rank is now the lower one. The lowest rank that differs from it is s.Other,
	// o.Rank or o.Other, since o.Rank is the lowest of its side.
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

// Err returns the Mismatch, or nil if all fingerprints seen are equal.
func (s *Seen) Err() error {
	if s.Other < 0 {
		return nil
	}
	return Mismatch(s.Rank, s.Print, s.Other, s.Diff)
}

// boundedBit is Bounded in the first word: the top bit, which no rank has set.
const boundedBit = 1 << 63

// Encode writes s to the first SeenSize bytes of b.
func (s *Seen) Encode(b []byte) {
	_ = b[SeenSize-1]
	le := binary.LittleEndian
	first := uint64(s.Rank)
	if s.Bounded {
		first |= boundedBit
	}
	le.PutUint64(b, first)
	le.PutUint64(b[8:], uint64(s.Other))
	s.Print.encode(b[16:])
	s.Diff.encode(b[16+FingerprintSize:])
}

// DecodeSeen is the inverse of Encode. It returns false if b does not have
// SeenSize bytes or if a rank in it is not below size.
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
	s.Print, s.Diff = decodeFingerprint(b[16:]), decodeFingerprint(b[16+FingerprintSize:])
	return s, true
}
