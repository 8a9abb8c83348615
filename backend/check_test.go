package backend

import (
	"math/rand/v2"
	"testing"
)

// Merging by dissemination gives every rank the Seen that comparing all
// fingerprints in one place gives.
func TestSeenMergesToTheSameResultOnAllRanks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var prints []Fingerprint
	for _, c := range []Call{{Coll: Bcast, Root: 1, Count: 5}, {Coll: Bcast, Root: 2, Count: 5}, {Coll: Barrier, Form: Nonblocking}, {Coll: Reduce, Err: ErrCount}} {
		prints = append(prints, c.Fingerprint())
	}
	for range 2000 {
		n := 1 + rng.IntN(9)
		f := make([]Fingerprint, n)
		kinds := 1 + rng.IntN(len(prints))
		for i := range f {
			f[i] = prints[rng.IntN(kinds)]
		}
		bounded := make([]bool, n)
		want := Seen{Rank: 0, Print: f[0], Other: -1, Bounded: rng.IntN(2) == 0}
		if want.Bounded {
			bounded[rng.IntN(n)] = true
		}
		for i := range f {
			if f[i] != f[0] {
				want.Other, want.Diff = i, f[i]
				break
			}
		}
		// Dissemination, as the runner does it, with messages encoded.
		state := make([]Seen, n)
		for i := range state {
			state[i] = See(i, f[i])
			state[i].Bounded = bounded[i]
		}
		for dist := 1; dist < n; dist *= 2 {
			sent := make([][SeenSize]byte, n)
			for i := range state {
				state[i].Encode(sent[i][:])
			}
			for i := range state {
				got, ok := DecodeSeen(sent[(i-dist+n)%n][:], n)
				if !ok {
					t.Fatal("an encoded Seen does not decode")
				}
				state[i].Merge(got)
			}
		}
		for i, s := range state {
			if s != want {
				t.Fatalf("%d ranks, rank %d: got %+v, want %+v", n, i, s, want)
			}
			if (s.Err() != nil) != (want.Other >= 0) {
				t.Fatalf("Err of %+v is %v", s, s.Err())
			}
		}
	}
}

func FuzzDecodeSeen(f *testing.F) {
	var b [SeenSize]byte
	s := Seen{Rank: 1, Print: (&Call{Coll: Bcast}).Fingerprint(), Other: 2, Diff: (&Call{Coll: Barrier}).Fingerprint()}
	s.Encode(b[:])
	f.Add(b[:], 3)
	s.Bounded = true
	s.Encode(b[:])
	f.Add(b[:], 3)
	f.Add([]byte("short"), 3)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		s, ok := DecodeSeen(b, size)
		if !ok {
			return
		}
		if s.Rank >= size || s.Other >= size || s.Rank < 0 || s.Other < -1 {
			t.Fatalf("ranks out of range: %+v of %d", s, size)
		}
		_ = s.Print.String() + s.Diff.String()
		var again [SeenSize]byte
		s.Encode(again[:])
		if string(again[:]) != string(b) {
			t.Fatalf("decoding and encoding changed the message")
		}
	})
}

func TestTagsOfCollectivesDoNotOverlap(t *testing.T) {
	const last = 1<<29 - 1
	if CheckTag(0) != -2 || DataTag(0) != -3 || CheckTag(1) != -4 || CheckTag(last+1) != -2 {
		t.Fatal("the tags are not those documented")
	}
	if p := PersistentTag(0); p >= DataTag(last) {
		t.Fatalf("persistent tag %d is not below the last data tag %d", p, DataTag(last))
	}
	if p := PersistentTag(1<<28-1) - 1; p <= AnyTag {
		t.Fatalf("last persistent data tag %d", p)
	}
}
