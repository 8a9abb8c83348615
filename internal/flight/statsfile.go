package flight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"slices"
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

// WriteStats writes the summary of a job to a file. own are ranks of this process, which have left the job; dir has the
// files of the others. If all have left, it removes dir, unless that has another name than RanksFolder gives. A rank whose
// file cannot be read is missing in the summary, which is no error.
func WriteStats(file, dir string, own ...*Recorder) error {
	var mine []*Dump
	for _, r := range own {
		var b bytes.Buffer
		err := r.Write(&b)
		d, bad := Decode(b.Bytes())
		if err = cmp.Or(err, bad); err != nil {
			return err
		}
		mine = append(mine, d)
	}
	return writeStats(file, dir, mine)
}

func writeStats(file, dir string, mine []*Dump) error {
	end := time.Now().Add(leavesFor)
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		s, err := Summarize(withOthers(mine, dir))
		if err != nil {
			return err
		}
		all, left := len(s.Missing)+len(s.Killed) == 0, time.Until(end)
		if all || left <= 0 {
			if err = s.WriteFile(file); err == nil && all && dir == RanksFolder(file) {
				_ = Clear(dir) // what stays there does no harm
				_ = os.Remove(dir)
			}
			return err
		}
		time.Sleep(min(pause, left))
	}
}

// withOthers adds to the dumps of some ranks those of the other ranks of their job that a folder has.
func withOthers(mine []*Dump, dir string) []*Dump {
	all := slices.Clone(mine)
	if len(mine) < mine[0].Size {
		others, _ := readAll(dir)
		for _, d := range others {
			if d.sameJob(mine[0]) && !slices.ContainsFunc(all, func(a *Dump) bool { return a.Rank == d.Rank }) {
				all = append(all, d)
			}
		}
	}
	return all
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
