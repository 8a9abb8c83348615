package spawn

import (
	"fmt"
	"os"
	"path/filepath"
)

// abortNote names the file that cohort's Abort writes into a job's folder (COHORT_RUN_DIR). The id of a process is the rank that
// it was started as, or with generations that in COHORT_GENERATIONS.
func abortNote(folder string, id int) string {
	return filepath.Join(folder, fmt.Sprint("aborted-", id))
}

// abortIn reads the file of a process that has called Abort. reacts says that it had been told of a rank's failure.
func abortIn(folder string, id int) (status int, reacts, ok bool) {
	if folder == "" {
		return 0, false, false
	}
	b, err := os.ReadFile(abortNote(folder, id))
	if err != nil {
		return 0, false, false
	}
	_, err = fmt.Sscan(string(b), &status, &reacts)
	return status, reacts, err == nil && status > 0
}

// followsIn reports whether a process has written to a job's folder that it fails because of another rank.
func followsIn(folder string, id int) bool { return noted(folder, fmt.Sprint("follows-", id)) }

// openIn reports whether a process has written to a job's folder that it has joined the job, and not that it has left.
func openIn(folder string, id int) bool { return noted(folder, fmt.Sprint("open-", id)) }

// ResilientIn reports whether a process has written to a job's folder that the job continues after losses.
func ResilientIn(folder string) bool { return noted(folder, "resilient") }

// noteEnding leaves a note in a job's folder, before its ranks are asked to end. A rank whose context ends looks for it, and
// without it counts as lost to the others.
func noteEnding(folder string) {
	if folder != "" {
		_ = os.WriteFile(filepath.Join(folder, "ending"), nil, 0o600)
	}
}

func noted(folder, name string) bool {
	_, err := os.Stat(filepath.Join(folder, name))
	return folder != "" && err == nil
}
