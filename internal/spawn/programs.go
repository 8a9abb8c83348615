package spawn

import (
	"fmt"
	"path/filepath"
)

// Program is an executable, and how many ranks execute it.
type Program struct {
	Path  string   // not looked up in PATH
	Args  []string // from argv[1] on
	Ranks int
}

// Programs are the programs of a job, in the order of their ranks.
type Programs []Program

// Ranks returns the number of ranks.
func (p Programs) Ranks() (n int) {
	for _, x := range p {
		n += x.Ranks
	}
	return n
}

// Part returns the programs of n ranks from first on.
func (p Programs) Part(first, n int) (part Programs) {
	for _, x := range p {
		before := min(first, x.Ranks)
		first -= before
		if x.Ranks = min(x.Ranks-before, n); x.Ranks > 0 {
			part = append(part, x)
		}
		n -= x.Ranks
	}
	return part
}

// Of returns the program of a rank.
func (p Programs) Of(rank int) Program { return p.Part(rank, 1)[0] }

// Name returns a rank's name for messages: "rank 3", or "rank 3 (worker)" in a job of several programs.
func (p Programs) Name(rank int) string {
	if len(p) > 1 && rank < p.Ranks() {
		return fmt.Sprintf("rank %d (%s)", rank, filepath.Base(p.Of(rank).Path))
	}
	return fmt.Sprint("rank ", rank)
}
