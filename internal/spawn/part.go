//go:build unix

package spawn

import (
	"fmt"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
)

// held reports whether the launcher of the larger job may still start processes.
func (s *state) held() bool { return s.cfg.relays() && !s.generations.released && s.m.Phase < job.Ends }

// Launch starts a process for a rank of the larger job. If that cannot be, Part.Ended is called for it. Launch, Kill, Tell and
// Release are for a job with Part.Relay.
func (j *Job) Launch(id, number int) {
	j.ask(func(s *state) {
		err := errEnds
		if s.m.Phase == job.Runs {
			err = s.another(id, number, s.free())
		}
		if err != nil {
			drained := make(chan struct{})
			close(drained)
			s.cfg.Part.Ended(job.Exit{Rank: number, ID: id, Status: 1, How: fmt.Sprintf("could not be started (%v)", err),
				After: job.Seconds(time.Since(s.begun)), Drained: drained})
		}
	})
}

// free returns the first place that no rank has.
func (j *Job) free() int {
	for place := 0; ; place++ {
		if !slices.ContainsFunc(j.ranks, func(r *rank) bool { return r.running() && r.place == place }) {
			return place
		}
	}
}

// Kill ends a process of the larger job, which the others count as lost.
func (j *Job) Kill(id int) { j.ask(func(s *state) { host{s}.Kill(id) }) }

// Tell sends a message of the larger job's launcher to a process.
func (j *Job) Tell(id int, m generation.Message) {
	j.ask(func(s *state) { host{s}.Tell(id, m) })
}

// Release lets the job end when its processes have ended.
func (j *Job) Release() { j.ask(func(s *state) { s.generations.released = true }) }
