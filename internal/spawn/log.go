//go:build unix

package spawn

import (
	"fmt"
	"time"
)

// log queues a message. It does not block: the end of a job must not depend on whether
// its messages are read.
func (j *Job) log(m message) {
	select {
	case j.logs <- m:
	default: // the queue is full: earlier messages have not been read either
	}
}

func (j *Job) logf(format string, args ...any) { j.log(message{text: fmt.Sprintf(format, args...)}) }

// writeLog writes messages until logs is closed.
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
