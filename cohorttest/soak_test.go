package cohorttest

import "testing"

func TestSoakRuns(t *testing.T) {
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
