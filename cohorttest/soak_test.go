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

func TestSoakRunsParsesCountsAndRanges(t *testing.T) {
	for _, c := range []struct {
		text        string
		first, runs int // 0: an error
	}{
		{"10000", 1, 10000},
		{"1", 1, 1},
		{"101-200", 101, 100},
		{"7-7", 7, 1},
		{"", 0, 0},
		{"0", 0, 0},
		{"-5", 0, 0},
		{"8-7", 0, 0},
		{"0-7", 0, 0},
		{"1-2-3", 0, 0},
		{"many", 0, 0},
	} {
		first, runs, ok := soakRuns(c.text)
		if ok != (c.runs > 0) || ok && (first != c.first || runs != c.runs) {
			t.Errorf("soakRuns(%q) = %d, %d, %v; want %d, %d", c.text, first, runs, ok, c.first, c.runs)
		}
	}
}
