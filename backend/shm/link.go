package shm

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/memlink"
)

// link is the engine.Link to another rank.
type link struct{ *memlink.Link }

// Memory returns the link itself, for the engine.
func (l *link) Memory() *memlink.Link { return l.Link }

// Arm implements engine.Link: the peer rings if this rank sleeps.
func (l *link) Arm(room bool) bool { return l.Ready(room) }

// Disarm implements engine.Link.
func (l *link) Disarm() {}

// Limit implements engine.Link.
func (l *link) Limit(time.Duration) {}

// Release implements engine.Link: the segment is that of the job.
func (l *link) Release() {}
