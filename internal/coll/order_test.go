package coll

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// vectors is a Loader of words that are read in place.
type vectors [][]byte

func (v vectors) Load(rank, lo, hi int, _ []byte) ([]byte, error) { return v[rank][8*lo : 8*hi], nil }

// fetched is a Loader that copies, and spoils what it has given before: only
// memory that Eval said to be scratch is used.
type fetched [][]byte

func (v fetched) Load(rank, lo, hi int, scratch []byte) ([]byte, error) {
	if len(scratch) != 8*(hi-lo) {
		return nil, fmt.Errorf("scratch of %d bytes for elements %d to %d", len(scratch), lo, hi)
	}
	copy(scratch, v[rank][8*lo:8*hi])
	return scratch, nil
}

// TestEvalFollowsTheOrder compares Eval with the definition of the order, for ranges that
// cross chunks, blocks of all sizes, operands in place and copied, and dst apart
// from or in one of the vectors.
func TestEvalFollowsTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	op := wordOp(true, mix)
	rings := 0
	for n := 1; n <= 33; n++ {
		for _, count := range []int{1, 2, 19, 70, 3 * n} {
			for kind := range 4 {
				input := make([][]byte, n)
				for r := range input {
					input[r] = random(rng, 8*count)
				}
				var o Order
				upTo := n
				switch kind {
				case 0:
					o = newOrder(n, count, 8, true, 16)
				case 1:
					o = newOrder(n, count, 8, false, 16)
				case 2:
					o = ScanOrder(n-1, 8, false)
				case 3:
					o = ScanOrder(n-1, 8, true)
				}
				if o.Ring() {
					rings++
				}
				lo := rng.IntN(count + 1)
				hi := lo + rng.IntN(count+1-lo)
				old := random(rng, 8*(hi-lo))
				want := make([]uint64, hi-lo)
				chunk := chunks(count, n)
				for i := lo; i < hi; i++ {
					var x []uint64
					for _, v := range input[:upTo] {
						x = append(x, words(v)[i])
					}
					switch {
					case kind == 2:
						want[i-lo] = prefixOf(x, true, mix)
					case kind == 3 && n == 1:
						want[i-lo] = words(old)[i-lo]
					case kind == 3:
						want[i-lo] = prefixOf(x[:n-1], false, mix)
					case o.Ring():
						want[i-lo] = ringOf(x, chunk[i], mix)
					default:
						want[i-lo] = treeOf(x, mix)
					}
				}
				scratch := make([]byte, o.ScratchBlocks()*8*(1+rng.IntN(20))+rng.IntN(8))
				own := rng.IntN(n + 1) // n: dst apart from the vectors
				if kind == 3 {
					own = n
				}
				for _, copied := range []bool{false, true} {
					in := make([][]byte, n)
					for r := range in {
						in[r] = slices.Clone(input[r])
					}
					dst := slices.Clone(old)
					if own < n {
						dst = in[own][8*lo : 8*hi]
					}
					var l Loader = vectors(in)
					if copied {
						l = fetched(in)
					}
					if err := o.Eval(op, lo, hi, dst, l, scratch); err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(words(dst), want) {
						t.Fatalf("kind %d, %d ranks, elements %d to %d of %d, copied %v, scratch %d, dst in %d: wrong", kind, n, lo, hi, count, copied, len(scratch), own)
					}
					for r := range in {
						if r == own {
							copy(in[r][8*lo:8*hi], input[r][8*lo:8*hi])
						}
						if !bytes.Equal(in[r], input[r]) {
							t.Fatalf("%d ranks: Eval has changed rank %d's vector", n, r)
						}
					}
				}
			}
		}
	}
	if rings == 0 {
		t.Error("no ring order among the cases")
	}
}

type failing struct{ after int }

var errLoad = errors.New("load")

func (f *failing) Load(_, lo, hi int, _ []byte) ([]byte, error) {
	if f.after--; f.after < 0 {
		return nil, errLoad
	}
	return make([]byte, 8*(hi-lo)), nil
}

// TestEvalReturnsErrors: a failing load ends Eval, and buffers that do not fit
// are errors.
func TestEvalReturnsErrors(t *testing.T) {
	op := wordOp(true, sum)
	for _, o := range []Order{newOrder(1, 6, 8, true, 8), newOrder(6, 6, 8, false, 8), newOrder(6, 6, 8, true, 8), ScanOrder(5, 8, false), ScanOrder(5, 8, true)} {
		scratch := make([]byte, 48*o.ScratchBlocks())
		loads := 0
		for ; ; loads++ {
			err := o.Eval(op, 0, 6, make([]byte, 48), &failing{loads}, scratch)
			if err == nil {
				break
			}
			if !errors.Is(err, errLoad) {
				t.Fatal(err)
			}
		}
		if loads == 0 {
			t.Errorf("%+v: nothing was loaded", o)
		}
		if err := o.Eval(op, 0, 6, make([]byte, 40), &failing{100}, scratch); !errors.Is(err, backend.ErrInternal) {
			t.Errorf("%+v with a short destination: %v", o, err)
		}
		if o.ScratchBlocks() > 0 {
			if err := o.Eval(op, 0, 6, make([]byte, 48), &failing{100}, make([]byte, 8*o.ScratchBlocks()-1)); !errors.Is(err, backend.ErrInternal) {
				t.Errorf("%+v with short scratch: %v", o, err)
			}
		}
	}
}

// TestEvalDoesNotAllocate: Eval does not allocate.
func TestEvalDoesNotAllocate(t *testing.T) {
	op := wordOp(true, sum)
	for _, n := range []int{1, 2, 3, 8, 13} {
		in := make(vectors, n)
		for r := range in {
			in[r] = make([]byte, 8*100)
		}
		var l Loader = in
		dst := make([]byte, 8*100)
		for _, o := range []Order{newOrder(n, 100, 8, true, 8), newOrder(n, 100, 8, false, 8), ScanOrder(n-1, 8, false), ScanOrder(n-1, 8, true)} {
			scratch := make([]byte, o.ScratchBlocks()*8*7)
			if a := testing.AllocsPerRun(10, func() {
				if err := o.Eval(op, 0, 100, dst, l, scratch); err != nil {
					t.Fatal(err)
				}
			}); a != 0 {
				t.Errorf("%+v: %v allocations", o, a)
			}
		}
	}
}
