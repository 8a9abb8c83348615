package cohorttest

import (
	"testing"
)

// Some is a part of [Test]: one number of ranks, the smaller matrix, and the scenarios that fits
// says yes to by their names. It is for what is too slow, or too broken, for all of them: a network
// that loses packets, say.
func Some(t *testing.T, l Launcher, ranks int, fits func(scenario string) bool) {
	become()
	l = shortened{l}
	var together, alone []string
	for _, s := range all() {
		switch {
		case s.sizes != nil && !s.sizes(ranks) || !fits(s.name):
		case skip(l, s.name, ranks) != "":
			t.Run(s.name, func(t *testing.T) { t.Skip(skip(l, s.name, ranks)) })
		case s.alone:
			alone = append(alone, s.name)
		default:
			together = append(together, s.name)
		}
	}
	if len(together)+len(alone) == 0 {
		t.Fatal("no scenario fits")
	}
	if len(together) > 0 {
		launch(t, l, ranks, together)
	}
	for _, name := range alone {
		launch(t, l, ranks, []string{name})
	}
}

// Become does a rank's part and ends the process, if this process was started as a rank. Test, Bits,
// and Some begin with it; a test that does something else before them calls it first.
func Become() { become() }

// shortened asks for the smaller matrix.
type shortened struct{ Launcher }

func (s shortened) Launch(t testing.TB, job *Job) error {
	t.Helper()
	job.Short = true
	return s.Launcher.Launch(t, job)
}

func (s shortened) Skip(scenario string, ranks int) string { return skip(s.Launcher, scenario, ranks) }
