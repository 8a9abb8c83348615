package sddp

import "testing"

// The known answers are those of Random123's kat_vectors for philox4x32 with 10 rounds.
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, k := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox(k.ctr, k.key); got != k.want {
			t.Errorf("philox(%x, %x) = %x, want %x", k.ctr, k.key, got, k.want)
		}
	}
}

// Every coordinate, the purpose and both halves of the seed must matter.
func TestDrawsDependOnEveryCoordinate(t *testing.T) {
	seen := map[uint64]string{}
	note := func(name string, v uint64) {
		if other, taken := seen[v]; taken {
			t.Errorf("%s and %s draw the same", name, other)
		}
		seen[v] = name
	}
	note("base", drawBits(7, 1, 2, 3, forPass))
	note("seed", drawBits(8, 1, 2, 3, forPass))
	note("high seed", drawBits(7+1<<32, 1, 2, 3, forPass))
	note("a", drawBits(7, 2, 2, 3, forPass))
	note("b", drawBits(7, 1, 3, 3, forPass))
	note("c", drawBits(7, 1, 2, 4, forPass))
	note("purpose", drawBits(7, 1, 2, 3, forPath))
}

func TestDrawsAreInRangeAndUniform(t *testing.T) {
	var count [7]int
	const n = 70000
	for i := range n {
		if u := drawUniform(1, i, 0, 0, forOpening); !(u > 0 && u < 1) {
			t.Fatalf("draw %d: %v is not strictly between 0 and 1", i, u)
		}
		count[drawBelow(1, len(count), i, 0, 0, forPass)]++
	}
	// Chi square with 6 degrees of freedom exceeds 33 with a probability below 1e-5.
	chi := 0.0
	for _, k := range count {
		d := float64(k) - n/7.0
		chi += d * d / (n / 7.0)
	}
	if chi > 33 {
		t.Errorf("openings are drawn unevenly: %v, chi square %.1f", count, chi)
	}
}
