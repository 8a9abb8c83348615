package soft

import (
	"fmt"
	"strings"
)

// Count is how many copies there were, and of how many bytes.
type Count struct{ Copies, Bytes int }

// Copies are those of one direction, by the host memory.
type Copies struct{ Pinned, Pageable Count }

// Stats is what is there, and what was done.
type Stats struct {
	Allocations, Allocated int // pieces of device memory, and their bytes, with what rounding takes
	Pins, Pinned           int // pieces of pinned memory, and their bytes
	Streams, Events        int
	Work                   int // pieces not yet done
	Peak                   int // the most that Allocated was
	PeakPinned             int // the most that Pinned was

	ToHost, ToDevice Copies // that were done
	Within           Count

	// Violations are uses of host memory while a copy of it was under way, and other mistakes that a
	// driver would not notice.
	Violations []string
}

// Stats returns the counters.
func (d *Driver) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Violations = append([]string(nil), s.Violations...)
	return s
}

// Left returns what was not given back, and mistakes that were found; nil if there is nothing of
// either.
func (d *Driver) Left() error {
	s := d.Stats()
	var left []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{s.Allocations, fmt.Sprintf("allocations, of %d bytes", s.Allocated)},
		{s.Pins, fmt.Sprintf("pieces of pinned memory, of %d bytes", s.Pinned)},
		{s.Streams, "streams"}, {s.Events, "events"}, {s.Work, "pieces of work not done"},
	} {
		if c.n != 0 {
			left = append(left, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	left = append(left, s.Violations...)
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", d.config.Name, strings.Join(left, "; "))
}

// violation notes a mistake. d.mu is held.
func (d *Driver) violation(format string, args ...any) {
	const most = 100 // of the same kind, mostly
	if len(d.stats.Violations) < most {
		d.stats.Violations = append(d.stats.Violations, fmt.Sprintf(format, args...))
	}
}
