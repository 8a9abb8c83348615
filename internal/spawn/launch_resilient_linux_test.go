package spawn

import (
	"strings"
	"testing"
)

// A launcher that lets the other ranks run when one fails may run a resilient job. Its own status is not
// the job's.
func TestLauncherThatContinuesRunsResilientJob(t *testing.T) {
	for _, c := range []struct {
		name          string
		goesOn        bool
		args          []string // in the order in which they end
		first, status int
		message       string
	}{
		{"one killed", true, []string{"1=signal9", "0=0", "2=0"}, -1, 0, "; the job goes on with 2 ranks\n"},
		{"one that was left fails", true, []string{"0=signal9", "1=0", "2=5"}, 2, 5, "cohort: rank 2 exited with status 5 after "},
		{"all fail", true, []string{"1=3", "0=signal9", "2=4"}, 1, 3, "; no rank is left\n"},
		{"none", true, []string{"0=0", "1=0", "2=0"}, -1, 0, ""},
		{"does not go on", false, []string{"1=7", "0=0", "2=0"}, 1, 7, "; ending the others\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := launched(t, 3, "wait", "ordered", append([]string{t.TempDir()}, c.args...)...)
			cfg.Resilient, cfg.Launch.GoesOn = func() bool { return true }, c.goesOn
			r := wait(t, start(t, cfg))
			if r.Status != c.status || r.First != c.first || r.Err != nil {
				t.Errorf("got %+v, want status %d of rank %d", r, c.status, c.first)
			}
			if text := cfg.Stderr.(*buffer).String(); !strings.Contains(text, c.message) {
				t.Errorf("it does not say %q:\n%s", c.message, text)
			}
		})
	}
}
