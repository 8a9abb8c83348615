package lp_test

import (
	"fmt"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// A plant with turbines at no cost but little water, a thermal plant, and a value of stored water
// that a cut describes.
func Example() {
	s := lp.New()
	hydro := s.AddColumn(0, 0, 60)
	thermal := s.AddColumn(50, 0, 100)
	stored := s.AddColumn(0, 0, 80)
	future := s.AddColumn(1, 0, lp.Inf)
	demand := s.AddRow(lp.EQ, 90, []int{hydro, thermal}, []float64{1, 1})
	water := s.AddRow(lp.EQ, 70, []int{hydro, stored}, []float64{1, 1})

	show := func() {
		status, err := s.Solve()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v: cost %.0f, hydro %.0f, thermal %.0f, stored %.0f; power is worth %.0f, water %.0f\n",
			status, s.Objective(), s.Value(hydro), s.Value(thermal), s.Value(stored), s.Dual(demand), s.Dual(water))
	}
	show()
	// Water kept for later saves up to 2000, at 80 a unit: worth more than thermal power now.
	s.AddRow(lp.GE, 2000, []int{future, stored}, []float64{1, 80})
	show()
	s.SetRHS(water, 30)
	show()
	// Output:
	// optimal: cost 1500, hydro 60, thermal 30, stored 10; power is worth 50, water 0
	// optimal: cost 2250, hydro 45, thermal 45, stored 25; power is worth 50, water -50
	// optimal: cost 4250, hydro 5, thermal 85, stored 25; power is worth 50, water -50
}

// Cuts that come and go start from the basis that was kept for them.
func ExampleSimplex_SetBasis() {
	s := lp.New()
	x := s.AddColumn(-3, 0, 10)
	y := s.AddColumn(-2, 0, 10)
	s.AddRow(lp.LE, 12, []int{x, y}, []float64{1, 1})
	s.AddRow(lp.LE, 20, []int{x, y}, []float64{2, 1})
	if _, err := s.Solve(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Objective())
	kept := s.Basis(lp.Basis{})

	s.Truncate(1)
	if _, err := s.Solve(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Objective())

	s.AddRow(lp.LE, 20, []int{x, y}, []float64{2, 1})
	if err := s.SetBasis(kept); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Solve(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Objective(), s.Iterations())
	// Output:
	// -32
	// -34
	// -32 0
}
