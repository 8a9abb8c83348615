package cohorttest

import "testing"

func TestCoveringHasEveryPairOfValues(t *testing.T) {
	for _, axes := range [][]int{{3}, {2, 2}, {8, 6, 1, 2, 3, 4}, {8, 6, 3, 2, 3, 4}, {6, 6, 8, 2, 3}, {1, 1, 1}} {
		rows := covering(axes)
		most := 1
		for j := range axes {
			for i := range j {
				most = max(most, axes[i]*axes[j])
				seen := map[[2]int]bool{}
				for _, row := range rows {
					seen[[2]int{row[i], row[j]}] = true
				}
				if len(seen) != axes[i]*axes[j] {
					t.Errorf("axes %v: %d pairs of values of axes %d and %d in %d rows, want %d", axes, len(seen), i, j, len(rows), axes[i]*axes[j])
				}
			}
		}
		for _, row := range rows {
			for i, v := range row {
				if v < 0 || v >= axes[i] {
					t.Errorf("axes %v: row %v", axes, row)
				}
			}
		}
		if len(axes) > 1 && len(rows) > 2*most {
			t.Errorf("axes %v: %d rows, want about %d", axes, len(rows), most)
		}
	}
}

// For each number of ranks of a sample, every collective meets every length, type,
// root, form, and both places.
func TestSampleHasEveryValueForEachNumberOfRanks(t *testing.T) {
	for _, size := range slots {
		r := &Rank{Size: size, Short: true, job: &Job{}}
		for _, c := range collectives() {
			axes := c.axes(r)
			rows := r.sampled(axes...)
			for i, n := range axes {
				seen := map[int]bool{}
				for _, row := range rows {
					seen[row[i]] = true
				}
				if len(seen) != n {
					t.Errorf("%s, %d ranks: %d of %d values of axis %d in %d rows", c.name, size, len(seen), n, i, len(rows))
				}
			}
		}
	}
}
