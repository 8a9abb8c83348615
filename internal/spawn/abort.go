package spawn

import (
	"fmt"
	"os"
	"path/filepath"
)

// AbortIn reads the file that cohort's Abort writes into a job's folder (COHORT_RUN_DIR). reacts says that the rank had been told
// of another one's failure.
func AbortIn(folder string) (rank, status int, reacts, ok bool) {
	b, err := os.ReadFile(filepath.Join(folder, "aborted"))
	if folder == "" || err != nil {
		return 0, 0, false, false
	}
	_, err = fmt.Sscan(string(b), &rank, &status, &reacts)
	return rank, status, reacts, err == nil && rank >= 0 && status > 0
}

// FollowsIn reports whether a process has written to a job's folder that it fails because of another rank. Its id is its rank, or
// with generations that in COHORT_GENERATIONS.
func FollowsIn(folder string, id int) bool { return noted(folder, "follows-", id) }

// openIn reports whether a process has written to a job's folder that it has joined the job, and not that it has left.
func openIn(folder string, id int) bool { return noted(folder, "open-", id) }

func noted(folder, what string, id int) bool {
	_, err := os.Stat(filepath.Join(folder, fmt.Sprint(what, id)))
	return folder != "" && err == nil
}
