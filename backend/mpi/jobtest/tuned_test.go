//go:build cgo && linux

package jobtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// affine is the function x → x*times + plus.
type affine struct{ times, plus uint32 }

// then returns the function that applies f and then g. The order matters, and the grouping does not.
func (f affine) then(g affine) affine { return affine{f.times * g.times, f.plus*g.times + g.plus} }

// element returns what a rank contributes at an index.
func element(rank, i int) affine { return affine{uint32(2*rank + 3), uint32(i + rank)} }

var compose = cohort.NewOp(false, func(in, inout []affine) {
	for i := range in {
		inout[i] = in[i].then(inout[i])
	}
})

// ordered makes reductions whose operation does not commute, and compares the results with those of ranks in order.
func ordered(w *cohort.Comm) error {
	n, me := w.Size(), w.Rank()
	for _, block := range []int{1, 7, 3000} {
		send, recv, want := make([]affine, n*block), make([]affine, n*block), make([]affine, n*block)
		for i := range send {
			send[i], want[i] = element(me, i), element(0, i)
			for r := 1; r < n; r++ {
				want[i] = want[i].then(element(r, i))
			}
		}
		counts := make([]int, n)
		for i := range counts {
			counts[i] = block
		}
		look := func(what string, recv, want []affine) {
			for i := range recv {
				if recv[i] != want[i] {
					panic(fmt.Sprintf("rank %d: %s of blocks of %d: element %d is %v, want %v", me, what, block, i, recv[i], want[i]))
				}
			}
		}
		must.OK(cohort.Allreduce(w, send, recv, compose))
		look("Allreduce", recv, want)
		must.OK(cohort.Reduce(w, send, recv, compose, n-1))
		if me == n-1 {
			look("Reduce", recv, want)
		}
		must.OK(cohort.ReduceScatter(w, send, recv[:block], counts, compose))
		look("ReduceScatter", recv[:block], want[me*block:])
		must.OK(cohort.ReduceScatterBlock(w, send, recv[:block], compose))
		look("ReduceScatterBlock", recv[:block], want[me*block:])
	}
	return nil
}

// TestTunedReductionsKeepOrderOfRanks chooses algorithms of Open MPI that ignore whether an operation commutes, by Config and by
// the library's own variables. One rank's variable counts on all ranks.
func TestTunedReductionsKeepOrderOfRanks(t *testing.T) {
	rank("ordered", ordered)
	program("one tuned", func() error {
		if os.Getenv("OMPI_COMM_WORLD_RANK") == "1" {
			must.OK(os.Setenv("OMPI_MCA_coll_tuned_bcast_tree_fanout", "4")) // the library's default
		}
		return with(ordered)
	})
	for _, c := range []struct {
		name, program string
		env           []string
	}{
		{"Config", "ordered", []string{"COHORT_MPI_TUNING=allreduce=ring,reduce=binary,reducescatter=ring"}},
		{"variables", "ordered", []string{"OMPI_MCA_coll_tuned_use_dynamic_rules=1",
			"OMPI_MCA_coll_tuned_allreduce_algorithm=segmented_ring", "OMPI_MCA_coll_tuned_reduce_algorithm=pipeline"}},
		{"one rank", "one tuned", nil},
	} {
		t.Run(c.name, func(t *testing.T) { start(t, "openmpi", 4, c.program, c.env...).must(t) })
	}
}

// TestHanReducesBesideRanksInPlace has some ranks work in place and others not. With its component han, Open MPI 4 would crash.
func TestHanReducesBesideRanksInPlace(t *testing.T) {
	skipShort(t, "reductions of han, on two nodes")
	rank("mixed", func(w *cohort.Comm) error {
		const length = 20000
		n, me := w.Size(), w.Rank()
		for inPlace := range n {
			send, recv := make([]int, length), make([]int, length)
			if me == inPlace {
				send = recv
			}
			fill := func() {
				for i := range send {
					send[i] = me + i
				}
			}
			look := func(what string) {
				for i, got := range recv {
					if want := n*i + n*(n-1)/2; got != want {
						panic(fmt.Sprintf("rank %d, %s with rank %d in place: element %d is %d, want %d", me, what, inPlace, i, got, want))
					}
				}
			}
			fill()
			must.OK(cohort.Allreduce(w, send, recv, cohort.Sum))
			look("Allreduce")
			fill()
			must.OK(cohort.Reduce(w, send, recv, cohort.Sum, inPlace))
			if me == inPlace {
				look("Reduce")
			}
		}
		return nil
	})
	across(t, "openmpi", "mixed", "OMPI_MCA_coll_han_priority=100").must(t)
}
