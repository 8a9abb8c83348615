package spawn

import (
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
)

// noHost is a generation.Host that does nothing.
type noHost struct{}

func (noHost) Start(int, int)               {}
func (noHost) Kill(int)                     {}
func (noHost) Tell(int, generation.Message) {}
func (noHost) Fail(string)                  {}

// TestEndOfOutcastDecidesNothing has a process end that the others count as lost, alone or with its host, before and after the
// user has asked the job to end. By itself it may call Abort.
func TestEndOfOutcastDecidesNothing(t *testing.T) {
	for _, asked := range []bool{false, true} {
		for _, how := range []string{"fails", "aborts", "is lost with its host"} {
			withHost, aborts := how == "is lost with its host", how == "aborts"
			m := job.New(job.Config{Now: time.Now, Ranks: 2, Say: func(string, <-chan struct{}) {}})
			u := NewElasticJob(generation.Config{Now: time.Now, Size: 2, Min: 2, Max: 2, Restarts: 1, Host: noHost{}}, m)
			for id := range 2 {
				u.Handle(id, generation.Request{Ask: &generation.Ask{}})
			}
			for id := range 2 {
				u.Handle(id, generation.Request{Joined: true})
			}
			u.Handle(1, generation.Request{Ask: &generation.Ask{Lost: []int{0}}})
			u.Handle(0, generation.Request{Ask: &generation.Ask{Lost: []int{1}}}) // process 1 is out
			if asked {
				m.Signal(syscall.SIGTERM)
			}
			u.Settle()
			x := job.Exit{Rank: 1, ID: 1, Status: 143, Aborted: aborts}
			if m.Running--; withHost {
				if lost := []job.Exit{x}; !u.HostLost("a host was lost", lost) {
					t.Errorf("asked to end: %v: the loss of its host decides", asked)
				}
			} else if u.Ended(&x); !x.Outlived {
				t.Errorf("asked to end: %v: that it %s decides", asked, how)
			}
		}
	}
}
