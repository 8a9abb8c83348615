// Command ft is kernel FT of the NAS Parallel Benchmarks: it solves the diffusion equation in three dimensions by Fourier
// transforms. The grid is shared out in slabs, and every transform turns it by one Alltoall.
//
//	go run ./cmd/cohort run -n 2 ./bench/npb/ft -class A
package main

import (
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// problem is a grid, and the checksums at times 1, 2, 3, …
type problem struct {
	nx, ny, nz int
	checksums  []complex128
}

func main() { npb.Main("FT", classes, run) }

func run(world *cohort.Comm, p problem, clock *npb.Clock) (npb.Result, error) {
	if size := world.Size(); p.ny%size != 0 || p.nz%size != 0 {
		return npb.Result{}, fmt.Errorf("%d ranks do not divide the grid %d x %d x %d in y and z", size, p.nx, p.ny, p.nz)
	}
	s := newSolver(world, p, clock)
	sums := make([]complex128, len(p.checksums))
	for range 2 { // the first time touches all memory, and is not reported
		if err := s.compute(sums); err != nil {
			return npb.Result{}, err
		}
	}
	n, times := float64(p.nx*p.ny*p.nz), float64(len(sums))
	result := npb.Result{
		Size:       fmt.Sprintf("%d x %d x %d", p.nx, p.ny, p.nz),
		Iterations: len(sums),
		Operations: n * (14.8157 + 7.19641*math.Log(n) + (5.23518+7.21113*math.Log(n))*times),
	}
	for i, sum := range sums {
		want := p.checksums[i]
		result.Checks = append(result.Checks, npb.Near(fmt.Sprintf("checksum %d, real", i+1), real(sum), real(want), 1e-12),
			npb.Near(fmt.Sprintf("checksum %d, imag", i+1), imag(sum), imag(want), 1e-12))
	}
	return result, nil
}

var classes = map[string]problem{
	"S": {64, 64, 64, []complex128{
		554.6087004964 + 484.5363331978i, 554.6385409189 + 486.5304269511i, 554.6148406171 + 488.3910722336i,
		554.5423607415 + 490.1273169046i, 554.4255039624 + 491.7475857993i, 554.2683411902 + 493.2597244941i,
	}},
	"W": {128, 128, 32, []complex128{
		567.3612178944 + 529.3246849175i, 563.1436885271 + 528.2149986629i, 559.4024089970 + 527.0996558037i,
		556.0698047020 + 526.0027904925i, 553.0898991250 + 524.9400845633i, 550.4159734538 + 523.9212247086i,
	}},
	"A": {256, 256, 128, []complex128{
		504.6735008193 + 511.4047905510i, 505.9412319734 + 509.8809666433i, 506.9376896287 + 509.8144042213i,
		507.7892868474 + 510.1336130759i, 508.5233095391 + 510.4914655194i, 509.1487099959 + 510.7917842803i,
	}},
	"B": {512, 256, 256, []complex128{
		517.7643571579 + 507.7803458597i, 515.4521291263 + 508.8249431599i, 514.6409228649 + 509.6208912659i,
		514.2378756213 + 510.1023387619i, 513.9626667737 + 510.3976610617i, 513.7423460082 + 510.5948019802i,
		513.5547056878 + 510.7404165783i, 513.3910925466 + 510.8576573661i, 513.2470705390 + 510.9577278523i,
		513.1197729984 + 511.0460304483i, 513.0070319283 + 511.1252433800i, 512.9070537032 + 511.1968077718i,
		512.8182883502 + 511.2616233064i, 512.7393733383 + 511.3203605551i, 512.6691062020 + 511.3735928093i,
		512.6064276004 + 511.4218460548i, 512.5504076570 + 511.4656139760i, 512.5002331720 + 511.5053595966i,
		512.4551951846 + 511.5415130407i, 512.4146770029 + 511.5744692211i,
	}},
}
