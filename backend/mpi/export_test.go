//go:build cgo && linux

package mpi

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// AnswerFor is how long a failed rank waits for the others' answers.
func AnswerFor(d time.Duration) { answerFor = d }

// Depart sends a rank the messages with which n ranks leave the job.
func Depart(c backend.Comm, to, n int) {
	p := c.(*comm).p
	for range n {
		p.engine.tell(p.world, nil, to, p.folds.failure())
	}
}
