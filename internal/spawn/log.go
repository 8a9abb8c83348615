//go:build unix

package spawn

import (
	"fmt"
	"time"
)

// log has a message written when its time comes. It does not wait: the end of a
// job must not depend on anybody reading what is said about it.
func (j *Job) log(m message) {
	select {
	case j.logs <- m:
	default: // nobody has read the last dozens either
	}
}

func (j *Job) logf(format string, args ...any) { j.log(message{text: fmt.Sprintf(format, args...)}) }

// writeLog writes messages until there will be no more.
func (j *Job) writeLog() {
	for m := range j.logs {
		if m.after != nil {
			select {
			case <-m.after:
			case <-time.After(reportLimit):
			}
		}
		if j.cfg.Part != nil {
			j.cfg.Part.Log(m.text)
			continue
		}
		j.out.say("cohort: " + m.text + "\n")
	}
}
