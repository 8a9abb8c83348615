package soft

import (
	"fmt"
	"strings"
)

// Count counts copies and their bytes.
type Count struct{ Copies, Bytes int }

// Copies counts copies in one direction, by kind of host memory.
type Copies struct{ Pinned, Pageable Count }

// Stats counts what exists and what was done.
type Stats struct {
	Allocations, Allocated int // allocations of device memory, and their rounded bytes
	Pins, Pinned           int // pieces of pinned memory, and their bytes
	Streams, Events        int
	Work                   int // pieces not done

	ToHost, ToDevice Copies // that are done
	Within           Count

	// Violations are accesses to host memory during a copy, and other mistakes that a driver would
	// not notice.
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

// Left returns an error that lists what was not freed and all violations, or nil.
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

// violation records a mistake. d.mu is held.
func (d *Driver) violation(format string, args ...any) {
	const most = 100 // they are mostly alike
	if len(d.stats.Violations) < most {
		d.stats.Violations = append(d.stats.Violations, fmt.Sprintf(format, args...))
	}
}
