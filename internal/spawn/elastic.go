package spawn

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
)

// An ElasticJob is a job in which other processes take the places of those that are lost. The generation.Machine decides which
// these are, and the job.Machine how the job ends. One goroutine calls its methods.
type ElasticJob struct {
	*generation.Machine
	job   *job.Machine
	all   int              // restarts
	said  int              // how many were left when a message last said so
	ended map[int]job.Exit // by rank, ends of processes in whose places others are still to be started; each counts as running
}

// NewElasticJob returns that of a job whose first processes have been started.
func NewElasticJob(c generation.Config, m *job.Machine) *ElasticJob {
	return &ElasticJob{generation.New(c), m, c.Restarts, c.Restarts, make(map[int]job.Exit)}
}

// Ending reports whether the job is to end: then no process is started in place of another.
func (u *ElasticJob) Ending() bool { return u.job.Request != 0 || u.job.Phase != job.Runs }

// Timer returns a channel that receives when Tick is to be called, nil for never, or if u is nil.
func (u *ElasticJob) Timer() <-chan time.Time {
	if u != nil {
		if pause, due := u.Wait(); due {
			return time.After(pause)
		}
	}
	return nil
}

// Ended handles the end of a process, and changes x as its own rules require. It reports whether the job's status cannot
// depend on it, because another process takes its place.
func (u *ElasticJob) Ended(x *job.Exit) bool {
	if u.fate(x, x.Follows && x.Status <= 128) != generation.Replaced {
		return false
	}
	u.job.Say(fmt.Sprintf("%s %s after %s; starting it again%s", x.Name, x.How, x.After, u.counted()), x.Drained)
	return true
}

// HostLost handles the loss of a host with processes, which text describes. It reports whether the job goes on.
func (u *ElasticJob) HostLost(text string, lost []job.Exit) bool {
	again := 0
	for i := range lost {
		switch u.fate(&lost[i], true) { // the host counts as one restart
		case generation.Decides:
			return false
		case generation.Replaced:
			again++
		}
	}
	if again > 0 {
		text += fmt.Sprintf("; starting %s on other hosts%s", job.Count(again, "rank"), u.counted())
	} else if u.job.Running > 0 {
		text += "; the job goes on with " + job.Count(u.job.Running, "rank")
	}
	u.job.Say(text, nil)
	return true
}

// counted says how many restarts have been used, if one has since it last said so.
func (u *ElasticJob) counted() string {
	if u.Restarts == u.said {
		return ""
	}
	u.said = u.Restarts
	return fmt.Sprintf(" (restart %d of %d)", u.all-u.Restarts, u.all)
}

func (u *ElasticJob) fate(x *job.Exit, follows bool) generation.Fate {
	ending, active := u.Ending(), u.Active(x.ID)
	if x.Outlived || x.Aborted && active {
		x.GoesOn = true // whatever it reacts to, an Abort ends the job
		return generation.Decides
	}
	if ending {
		u.End("the job is ending")
	}
	fate := u.Machine.Ended(x.ID, x.Status == 0, follows)
	if ending && active {
		return generation.Decides
	}
	switch fate {
	case generation.Shrinks:
		x.GoesOn = true
	case generation.Ignored:
		x.Outlived = true
	case generation.Replaced:
		if u.Due(x.Rank) { // later; until then it counts as running
			u.ended[x.Rank] = *x
			u.job.Running++
		}
	}
	return fate
}

// Started records that a process of a rank is being started. The owner counts it as running.
func (u *ElasticJob) Started(rank int) { u.forget(rank) }

func (u *ElasticJob) forget(rank int) (x job.Exit, was bool) {
	if x, was = u.ended[rank]; was {
		delete(u.ended, rank)
		u.job.Running--
	}
	return x, was
}

// Scale asks for another size.
func (u *ElasticJob) Scale(ranks int) error {
	if err := u.Machine.Scale(ranks); err != nil {
		return err
	}
	for rank := range u.ended {
		if !u.Due(rank) { // the job does not need it any more
			u.forget(rank)
		}
	}
	u.job.Say("the job is to have "+job.Count(ranks, "rank"), nil)
	return nil
}

// Settle blames processes in whose places no others are started any more, and does not wait without end for those that the
// others count as lost. It is called after every event.
func (u *ElasticJob) Settle() {
	if u.Ending() {
		u.End("the job is ending")
	}
	for _, rank := range slices.Sorted(maps.Keys(u.ended)) {
		if !u.Due(rank) {
			x, _ := u.forget(rank)
			u.job.Ended(x)
		}
	}
	if left := u.Outcasts(); len(left) > 0 && u.job.Phase == job.Runs {
		u.job.Say("all ranks have ended; ending what is left of "+backend.RankList(left)+", which the others count as lost", nil)
		u.job.WindDown()
	}
}
