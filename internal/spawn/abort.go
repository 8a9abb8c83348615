package spawn

import (
	"fmt"
	"os"
	"path/filepath"
)

// AbortIn reads the file that cohort's Abort writes into a job's folder (COHORT_RUN_DIR).
func AbortIn(folder string) (rank, status int, ok bool) {
	b, err := os.ReadFile(filepath.Join(folder, "aborted"))
	if folder == "" || err != nil {
		return 0, 0, false
	}
	_, err = fmt.Sscan(string(b), &rank, &status)
	return rank, status, err == nil && rank >= 0 && status > 0
}

// FollowsIn reports whether a rank has written to a job's folder that it fails because of another one.
func FollowsIn(folder string, rank int) bool { return noted(folder, "follows-", rank) }

// openIn reports whether a rank has written to a job's folder that it has joined the job, and not that it has left.
func openIn(folder string, rank int) bool { return noted(folder, "open-", rank) }

func noted(folder, what string, rank int) bool {
	_, err := os.Stat(filepath.Join(folder, fmt.Sprint(what, rank)))
	return folder != "" && err == nil
}
