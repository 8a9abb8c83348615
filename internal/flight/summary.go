package flight

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// counted is a row of a rank's tables.
type counted struct {
	op    Operation // what of it the row tells
	class uint64
	tallyRow
}

// counts returns the rows of all tables, those of one key added up; nil if operations were not counted.
func (m image) counts() []counted {
	all := m.tally()
	if all == nil {
		return nil
	}
	rows := make(map[[2]uint64]tallyRow)
	add := func(r *tallyRow) {
		if r.calls == 0 && r.ticks == 0 && r.bytes == 0 {
			return
		}
		s := rows[[2]uint64{r.key, r.name}]
		if s.calls == 0 || r.calls > 0 && r.least < s.least {
			s.least = r.least
		}
		s.calls, s.bytes, s.ticks, s.waited, s.inside = s.calls+r.calls, s.bytes+r.bytes, s.ticks+r.ticks, s.waited+r.waited, s.inside+r.inside
		rows[[2]uint64{r.key, r.name}] = s
	}
	for i := range all {
		add(&all[i].rest)
		for k := range all[i].rows {
			add(&all[i].rows[k])
		}
	}
	list := make([]counted, 0, len(rows))
	for k, r := range rows {
		c := counted{op: m.operation(record{what: k[0], typed: k[1]}), class: k[0] & keyClass >> 16, tallyRow: r}
		if k[0]&Starts != 0 {
			c.op.Tag = 1 // the number of a start
		}
		list = append(list, c)
	}
	return list
}

// Summary tells where the time of a job went.
type Summary struct {
	Backend    string  `json:"backend"`
	Ranks      int     `json:"ranks"`
	Seconds    float64 `json:"seconds"` // of a rank in the job, the mean
	Operations []Sum   `json:"operations"`
	Regions    []Sum   `json:"regions"`
	Missing    []int   `json:"missing,omitempty"` // the ranks that have left no counts
	Killed     []int   `json:"killed,omitempty"`  // those that have not left the job in good order
}

// Sum is the calls of one operation on one communicator, or of one region. Times are in seconds, over the ranks that made
// such calls.
type Sum struct {
	Operation string  `json:"operation"`
	Comm      string  `json:"comm"`
	Ranks     int     `json:"ranks"`
	Calls     uint64  `json:"calls"`
	Bytes     uint64  `json:"bytes,omitempty"`
	Min       float64 `json:"min"`
	Mean      float64 `json:"mean"`
	Max       float64 `json:"max"`
	Waiting   float64 `json:"waiting,omitempty"` // the mean; see docs/where-time-goes.md
	Inside    float64 `json:"inside,omitempty"`  // of a region: the mean time in operations
	Share     float64 `json:"share"`             // of the time of all ranks
}

// kindOfCall is what calls have in common whose fastest one tells how long the others waited.
type kindOfCall struct {
	op, comm string
	class    uint64
}

// Summarize adds up the counts of a job's ranks.
//
//  1. It finds out which ranks have left counts, and how long they ran.
//  2. It finds the fastest call of each kind, on any rank.
//  3. For each rank it adds up the calls of each operation and communicator.
//  4. It takes the means over the ranks.
func Summarize(dumps []*Dump) (*Summary, error) {
	s := &Summary{Backend: dumps[0].Backend, Ranks: dumps[0].Size, Operations: []Sum{}, Regions: []Sum{}}
	counting := slices.DeleteFunc(slices.Clone(dumps), func(d *Dump) bool { return d.counts == nil })
	if len(counting) == 0 {
		return nil, errors.New("the ranks have not counted their operations: want cohort run --stats, or " + EnvStats + "=FILE")
	}
	run := s.ranks(counting)
	a := newAnalysis(dumps)
	fastest, sums := a.fastest(counting), make(map[kindOfCall]*Sum)
	for _, d := range counting {
		a.add(sums, d, fastest)
	}
	for k, sum := range sums {
		sum.Share = sum.Mean / max(run, 1e-9)
		sum.Mean /= float64(sum.Ranks)
		sum.Waiting /= float64(sum.Ranks)
		sum.Inside /= float64(sum.Ranks)
		if k.class == regions {
			s.Regions = append(s.Regions, *sum)
		} else {
			s.Operations = append(s.Operations, *sum)
		}
	}
	for _, list := range [][]Sum{s.Operations, s.Regions} {
		slices.SortFunc(list, func(a, b Sum) int {
			return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Comm, b.Comm))
		})
	}
	return s, nil
}

// ranks notes which ranks are missing, which were killed, and how long they were in the job. It returns the seconds of
// all ranks together.
func (s *Summary) ranks(counting []*Dump) (run float64) {
	there := make([]bool, s.Ranks)
	for _, d := range counting {
		there[d.Rank] = true
		run += d.ran().Seconds()
		if d.Left.IsZero() {
			s.Killed = append(s.Killed, d.Rank)
		}
	}
	for r, ok := range there {
		if !ok {
			s.Missing = append(s.Missing, r)
		}
	}
	s.Seconds = run / float64(len(counting))
	return run
}

// kind returns the kind of the calls that a rank has counted together.
func (a *analysis) kind(d *Dump, c *counted) kindOfCall {
	comm, _ := d.comm(c.op.Comm)
	k := kindOfCall{a.name(&c.op), comm.Name, c.class}
	switch {
	case c.op.Kind == 0:
		k.op, k.comm = "others", "several"
	case c.op.Comm == manyComms:
		k.comm = "several"
	case k.comm == "":
		k.comm = fmt.Sprintf("#%d", c.op.Comm)
	}
	return k
}

// fastest returns how many seconds the fastest call of each kind took.
func (a *analysis) fastest(counting []*Dump) map[kindOfCall]float64 {
	all := make(map[kindOfCall]float64)
	for _, d := range counting {
		for i := range d.counts {
			c := &d.counts[i]
			if k := a.kind(d, c); c.calls > 0 {
				if t, ok := all[k]; !ok || d.seconds(c.least) < t {
					all[k] = d.seconds(c.least)
				}
			}
		}
	}
	return all
}

// The classes of a sum, whose calls have all lengths. A region may have an operation's name.
const (
	operations = iota
	regions
)

// add adds the calls of a rank to the sums. A call that blocks has waited for as long as it took more than the fastest of
// its kind.
func (a *analysis) add(sums map[kindOfCall]*Sum, d *Dump, fastest map[kindOfCall]float64) {
	mine := make(map[kindOfCall]float64)
	for i := range d.counts {
		c := &d.counts[i]
		k := a.kind(d, c)
		least := fastest[k]
		if k.class = operations; c.op.Kind == Region {
			k.class = regions
		}
		sum := sums[k]
		if sum == nil {
			sum = &Sum{Operation: k.op, Comm: k.comm, Min: math.Inf(1)}
			sums[k] = sum
		}
		took := d.seconds(c.ticks)
		mine[k] += took
		sum.Calls += c.calls
		sum.Bytes += c.bytes
		sum.Mean += took
		sum.Inside += d.seconds(c.inside)
		switch {
		case c.op.Kind == Region || c.class == mixedClass:
		case c.op.blocks() && c.op.Kind != WaitAny:
			sum.Waiting += max(0, took-least*float64(c.calls))
		default:
			sum.Waiting += d.seconds(c.waited)
		}
	}
	for k, t := range mine {
		sum := sums[k]
		sum.Ranks++
		sum.Min, sum.Max = min(sum.Min, t), max(sum.Max, t)
	}
}

// seconds converts ticks of the rank's clock.
func (d *Dump) seconds(ticks uint64) float64 { return float64(ticks) / d.hertz }

// ran returns how long the rank was in the job: to its last record, if it has not left the job.
func (d *Dump) ran() time.Duration {
	end := d.Left
	if end.IsZero() {
		for _, o := range d.Ops {
			for _, t := range []time.Time{o.Begun, o.Since, d.Dumped} {
				if t.After(end) {
					end = t
				}
			}
		}
	}
	return max(0, end.Sub(d.Began))
}

// Write writes the summary as a table.
func (s *Summary) Write(w io.Writer) (err error) {
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	row := func(r Sum, bytes, part string) {
		line("  %-22s %-16s %6d %10d %8s %9s %9s %9s %8s %6.1f%%\n",
			r.Operation, r.Comm, r.Ranks, r.Calls, bytes, seconds(r.Min), seconds(r.Mean), seconds(r.Max), part, 100*r.Share)
	}
	percent := func(part, of float64) string { return fmt.Sprintf("%.0f%%", 100*min(1, part/max(of, 1e-12))) }
	var busy float64
	for _, r := range s.Operations {
		busy += r.Share
	}
	line("%d ranks on %s, %s each, %.1f%% of it in operations\n", s.Ranks, s.Backend, seconds(s.Seconds), 100*busy)
	if len(s.Missing) > 0 {
		line("  %s left no counts\n", ranksText(s.Missing, true))
	}
	if len(s.Killed) > 0 {
		line("  %s did not close the world: the counts go up to the end of the process\n", ranksText(s.Killed, true))
	}
	head := func(what, bytes, part string) {
		line("  %-22s %-16s %6s %10s %8s %9s %9s %9s %8s %7s\n", what, "communicator", "ranks", "calls", bytes, "min", "mean", "max", part, "share")
	}
	if len(s.Operations) > 0 {
		head("operation", "bytes", "waiting")
	}
	for _, r := range s.Operations {
		row(r, size(r.Bytes), percent(r.Waiting, r.Mean))
	}
	if len(s.Regions) > 0 {
		head("region", "", "in ops")
	}
	for _, r := range s.Regions {
		row(r, "", percent(r.Inside, r.Mean))
	}
	return err
}

// size formats a number of bytes, and seconds a time.
func size(n uint64) string { return scaled(float64(n), "B", "kB", "MB", "GB", "TB", "PB") }

func seconds(s float64) string { return scaled(s*1e9, "ns", "µs", "ms", "s") }

// scaled formats a number with three digits at least, in the first unit in which it is below 1000.
func scaled(n float64, units ...string) string {
	for n >= 999.5 && len(units) > 1 {
		n, units = n/1000, units[1:]
	}
	digits := 0
	if units[0] != "B" && n < 100 {
		digits = 1
	}
	if units[0] != "B" && n < 10 {
		digits = 2
	}
	return fmt.Sprintf("%.*f %s", digits, n, units[0])
}
