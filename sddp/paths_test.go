package sddp

import (
	"context"
	"math"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The inflows of a simulation are those that the user gives, with a PAR too, whose residuals they then set.
func TestGivenInflowsAreSimulated(t *testing.T) {
	c := seasonal("par", `"periods": ["wet", "dry"]`, "50, 70", "40, 20", "").read(t)
	policy := trained(t, c, Options{Iterations: 2, Passes: 2}).Policy
	const file = "scenario,stage,Lake\n1,1,30\n1,2,11\n1,3,45\n1,4,-3\n1,5,30\n1,6,9\n2,1,20\n2,2,12\n2,3,8\n2,4,7\n2,5,6\n2,6,5\n"
	paths, err := parsePaths("inflows.csv", []byte(file), c)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		_, err := Simulate(context.Background(), world, c, policy, SimulateOptions{Paths: paths, Seen: func(scenario int, stages []StageResult) {
			for i, st := range stages {
				if want := paths[scenario][i][0]; math.Abs(st.Inflow[0]-want) > 1e-9 {
					t.Errorf("scenario %d, stage %d: the inflow is %v, want %v", scenario+1, i+1, st.Inflow[0], want)
				}
				seen++
			}
		}})
		return err
	})
	if err != nil || seen != 12 {
		t.Errorf("%d stages, want 12 (%v)", seen, err)
	}
}
