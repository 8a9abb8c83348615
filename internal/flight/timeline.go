package flight

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// A timeline in the Trace Event Format, which Perfetto and chrome://tracing open ("Trace Event Format",
// Duvall and Sinclair 2016). A rank is a process, and its regions and operations are threads.

// traceEvent is an event of the format. Times are in microseconds.
type traceEvent struct {
	Name  string   `json:"name"`
	Phase string   `json:"ph"` // X: an interval, i: a moment, M: a name
	At    float64  `json:"ts"`
	Takes *float64 `json:"dur,omitempty"`
	Scope string   `json:"s,omitempty"` // of a moment
	Rank  int      `json:"pid"`
	Lane  int      `json:"tid"`
	Args  any      `json:"args,omitempty"`
}

// operationLane is the first lane of operations. Those before it are of regions.
const operationLane = 1000

// WriteTimeline writes the regions and operations of a job whose times are known.
func WriteTimeline(w io.Writer, dumps []*Dump) error {
	a := newAnalysis(dumps)
	var zero time.Time // when the first began
	for _, d := range dumps {
		for i := range d.Ops {
			if t, _ := d.Ops[i].interval(d, a); !t.IsZero() && (zero.IsZero() || t.Before(zero)) {
				zero = t
			}
		}
	}
	events := []traceEvent{} // not nil, which JSON would show as null
	for _, d := range dumps {
		name := func(what string, lane int, name string) {
			events = append(events, traceEvent{Name: what, Phase: "M", Rank: d.Rank, Lane: lane, Args: map[string]string{"name": name}})
		}
		name("process_name", 0, fmt.Sprintf("rank %d on %s", d.Rank, d.Host))
		name("thread_name", 0, "regions")
		name("thread_name", operationLane, "operations")
		events = append(events, a.timeline(d, zero)...)
	}
	return json.NewEncoder(w).Encode(struct {
		Events []traceEvent `json:"traceEvents"`
	}{events})
}

// interval returns when an operation began and ended. Its end is not recorded if it was successful: end is
// zero then. begun is zero if that is not known.
func (o *Operation) interval(d *Dump, a *analysis) (begun, end time.Time) {
	begun = o.Begun
	switch o.State {
	case Waiting:
		begun = o.Since
		fallthrough
	case Open:
		if end = d.Dumped; end.IsZero() {
			end = a.end
		}
	default:
		end = o.Since
	}
	if end.Before(begun) && !end.IsZero() {
		end = begun
	}
	return begun, end
}

func (a *analysis) timeline(d *Dump, zero time.Time) (events []traceEvent) {
	ops := make([]*Operation, 0, len(d.Ops))
	for i := range d.Ops {
		if t, _ := d.Ops[i].interval(d, a); !t.IsZero() {
			ops = append(ops, &d.Ops[i])
		}
	}
	slices.SortStableFunc(ops, func(x, y *Operation) int {
		xb, xe := x.interval(d, a)
		yb, ye := y.interval(d, a)
		return cmp.Or(xb.Compare(yb), ye.Compare(xe))
	})
	var regions, operations lanes
	for _, o := range ops {
		begun, end := o.interval(d, a)
		e := traceEvent{Name: a.name(o), Phase: "i", Scope: "t", At: micros(begun.Sub(zero)), Rank: d.Rank, Lane: operationLane, Args: a.line(d, o)}
		if !end.IsZero() {
			takes := micros(end.Sub(begun))
			e.Phase, e.Scope, e.Takes = "X", "", &takes
			if o.Kind == Region {
				e.Lane = regions.add(begun, end)
			} else {
				e.Lane = operationLane + operations.add(begun, end)
			}
		}
		events = append(events, e)
	}
	return events
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// lanes has, for each lane, the ends of the intervals that are open in it. The intervals of a lane lie within
// or behind each other, as the format demands. Those of several goroutines may overlap otherwise.
type lanes [][]time.Time

// add returns the lane of an interval. Intervals are added in the order in which they begin.
func (l *lanes) add(begun, end time.Time) int {
	for i, open := range *l {
		for len(open) > 0 && !open[len(open)-1].After(begun) {
			open = open[:len(open)-1]
		}
		if len(open) == 0 || !end.After(open[len(open)-1]) {
			(*l)[i] = append(open, end)
			return i
		}
	}
	*l = append(*l, []time.Time{end})
	return len(*l) - 1
}
