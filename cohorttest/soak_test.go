package cohorttest

import (
	"slices"
	"testing"
	"time"
)

// 99 of 100 ranks must be in time. With fewer than 1000 ranks there is no verdict.
func TestTooLateAllowsOneInAHundred(t *testing.T) {
	for _, c := range []struct {
		count, slow int
		bad         bool
	}{
		{999, 999, false}, {1000, 0, false}, {1000, 10, false}, {1000, 11, true}, {5000, 50, false}, {5000, 51, true},
	} {
		noticed := append(slices.Repeat([]time.Duration{noticeLimit}, c.count-c.slow), slices.Repeat([]time.Duration{noticeLimit + 1}, c.slow)...)
		if err := tooLate("it came", noticed, noticeLimit); (err != nil) != c.bad {
			t.Errorf("%d of %d are late: %v", c.slow, c.count, err)
		}
	}
}
