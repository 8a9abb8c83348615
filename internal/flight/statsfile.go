package flight

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"time"
)

// EnvStats is the variable that makes ranks count their operations. Its value is the file for the summary, or CountOnly.
const EnvStats = "COHORT_STATS"

// CountOnly makes ranks count and write no summary.
const CountOnly = "1"

// RanksFolder returns the folder for the ranks' files of a summary, unless EnvDir names one.
func RanksFolder(file string) string { return file + ".ranks" }

// leavesFor is how long WriteStats waits for ranks that are about to leave the job.
const leavesFor = 2 * time.Second

// WriteStats writes the summary of the job whose ranks write their files to dir. A rank that has left calls it. If all
// others have left, it removes dir, unless that has another name than RanksFolder gives.
func WriteStats(file, dir string) error {
	var s *Summary
	end := time.Now().Add(leavesFor)
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		dumps, _, err := Read(dir)
		if err == nil {
			s, err = Summarize(dumps)
		}
		all := err == nil && len(s.Missing)+len(s.Killed) == 0
		if all || time.Now().After(end) {
			if err == nil {
				err = s.WriteFile(file)
			}
			if err == nil && all && dir == RanksFolder(file) {
				_ = Clear(dir) // what stays there does no harm
				_ = os.Remove(dir)
			}
			return err
		}
		time.Sleep(pause)
	}
}

// WriteFile writes the summary to a file: as JSON if its name ends in .json, else as a table.
func (s *Summary) WriteFile(file string) (err error) {
	var b bytes.Buffer
	if strings.HasSuffix(file, ".json") {
		err = json.NewEncoder(&b).Encode(s)
	} else {
		err = s.Write(&b)
	}
	if err != nil {
		return err
	}
	return WriteFile(file, b.Bytes())
}
