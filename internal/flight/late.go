package flight

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// gaveUp returns when the first rank's time in a collective ran out, zero if no rank's did. A rank that began
// it later counts as one that had not come, although all seem to be in it: a stopped rank comes to the
// collective when it is continued, even if only to be ended.
func (a *analysis) gaveUp(s stand) (first time.Time) {
	for _, p := range a.ranks {
		if p.op == nil || !p.past || !p.op.Kind.Collective() || p.op.Code != backend.Code(backend.ErrTimeout) || p.op.Since.IsZero() ||
			p.op.Since.Before(p.op.Begun) { // only in a damaged file
			continue
		}
		if q, _ := standOf(p.d, p.op); q == s && (first.IsZero() || p.op.Since.Before(first)) {
			first = p.op.Since
		}
	}
	return first
}

// begun reports whether a rank has begun a collective that does not block, and not ended it.
func (d *Dump) begun(s stand) bool {
	for i := range d.Ops {
		o := &d.Ops[i]
		if o.Kind.Collective() && o.State == Open && o.Form != backend.Blocking && !o.prepares() {
			if q, _ := standOf(d, o); q == s {
				return true
			}
		}
	}
	return false
}
