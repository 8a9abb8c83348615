package npb

import (
	"math/big"
	"testing"
)

// The generator keeps to its formula in exact arithmetic, and jumping ahead and filling are steps of it.
func TestRandomFollowsItsFormula(t *testing.T) {
	exact, modulus := big.NewInt(int64(Seed)), new(big.Int).Lsh(big.NewInt(1), 46)
	r := Seed
	const n = 1003
	filled := make([]float64, n)
	all := Seed
	all.Fill(filled)
	for i := range n {
		jumped, part := Seed, make([]float64, n-i)
		jumped.Skip(uint64(i))
		if jumped != r {
			t.Fatalf("after a jump of %d the generator is at %d, after %d steps at %d", i, jumped, i, r)
		}
		if jumped.Fill(part); i > n-9 && part[len(part)-1] != filled[n-1] {
			t.Fatalf("the last of %d numbers is %v, and %v after the first %d", len(part), part[len(part)-1], filled[n-1], i)
		}
		exact.Mod(exact.Mul(exact, big.NewInt(1220703125)), modulus)
		x := r.Next()
		want, _ := new(big.Rat).SetFrac(exact, modulus).Float64()
		if uint64(r) != exact.Uint64() || x != want || filled[i] != want {
			t.Fatalf("number %d is %v, filled in %v, want %v", i, x, filled[i], want)
		}
	}
	if all != r {
		t.Errorf("after %d numbers the generator is at %d, want %d", n, all, r)
	}
}
