// Command mg is kernel MG of the NAS Parallel Benchmarks: V-cycles of a multigrid method that approximate the solution u
// of the discrete Poisson equation ∇²u = v on a periodic cube. Grids are shared out over a Cartesian communicator, and
// ranks exchange halos with their neighbors.
//
//	go run ./cmd/cohort run -n 2 ./bench/npb/mg -class A
package main

import (
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// problem is a cube of n points in each direction, how many cycles, the smoother S, and the norm of the last residual.
type problem struct {
	n, cycles int
	smoother  coefficients
	norm      float64
}

var (
	poisson = coefficients{-8. / 3, 0, 1. / 6, 1. / 12} // the operator A
	short   = coefficients{-3. / 8, 1. / 32, -1. / 64, 0}
	long    = coefficients{-3. / 17, 1. / 33, -1. / 61, 0}
)

var classes = map[string]problem{
	"S": {32, 4, short, 0.5307707005734e-4},
	"W": {128, 4, short, 0.6467329375339e-5},
	"A": {256, 4, short, 0.2433365309069e-5},
	"B": {256, 20, long, 0.1800564401355e-5},
	"C": {512, 20, long, 0.5706732285740e-6},
}

func main() { npb.Main("MG", classes, run) }

func run(world *cohort.Comm, p problem, clock *npb.Clock) (npb.Result, error) {
	m, err := newMultigrid(world, p, clock)
	if err != nil {
		return npb.Result{}, err
	}
	defer m.cart.Close()
	norm := 0.0
	for range 2 { // the first time touches all memory, and is not reported
		if norm, err = m.solve(); err != nil {
			return npb.Result{}, err
		}
	}
	return npb.Result{
		Size:       fmt.Sprintf("%d x %d x %d", p.n, p.n, p.n),
		Iterations: p.cycles,
		Operations: 58 * float64(p.n) * float64(p.n) * float64(p.n) * float64(p.cycles),
		Checks:     []npb.Check{npb.Near("norm of residual", norm, p.norm, 1e-8)},
	}, nil
}
