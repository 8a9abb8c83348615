package flight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// Finding is what the dumps of a job show.
type Finding struct {
	Line    string // one sentence
	Trouble bool   // it reports a failure
	Aborted bool   // it reports an Abort
}

// place is where a rank is: in an operation, which may have failed, or in none.
type place struct {
	d    *Dump // nil: the rank has left no file
	op   *Operation
	last *Operation // the last one that is over, if op is nil
	wait time.Duration
	past bool          // op has failed: the rank is no longer in it
	late time.Duration // how long after the others had given up it came to the collective; 0 if it was not late
}

// analysis is a job under analysis.
type analysis struct {
	dumps []*Dump
	ranks []place // by world rank
	end   time.Time
	types map[uint32]string
}

func newAnalysis(dumps []*Dump) *analysis {
	a := &analysis{dumps: dumps, types: make(map[uint32]string)}
	for _, d := range dumps {
		for id, name := range d.Types {
			a.types[id] = name
		}
		if d.Dumped.After(a.end) {
			a.end = d.Dumped
		}
	}
	return a
}

// Analyze returns in one sentence what dumps of the ranks of one job, at least one, show: which ranks are in
// which operation, and which ranks wait for which.
//
//  0. If a rank has aborted the job, it reports only that. If the program of ranks has failed, before an operation
//     did, it reports the first of them.
//  1. It finds where each rank is: in a blocking operation, waiting for a nonblocking one, or in neither.
//  2. Of the collectives that ranks are in, it takes the one with the lowest number, and reports which ranks
//     are in another operation of that number, and which have not reached it.
//  3. If there is none, it reports ranks that wait for each other in a cycle, or else ranks that wait.
func Analyze(dumps []*Dump) Finding {
	a := newAnalysis(dumps)
	a.ranks = make([]place, dumps[0].Size)
	for _, d := range dumps {
		a.ranks[d.Rank] = a.where(d)
	}
	for _, d := range dumps {
		if d.Cause == Aborted {
			return Finding{Line: d.Reason + a.after(a.ranks[d.Rank]), Trouble: true, Aborted: true}
		}
	}
	if d := first(dumps, func(d *Dump) bool { return d.Cause == ProgramFailed }); d != nil {
		return Finding{Line: d.Reason + a.after(a.ranks[d.Rank]), Trouble: true}
	}
	if f, ok := a.collective(); ok {
		return f
	}
	if f, ok := a.messages(); ok {
		return f
	}
	return a.quiet()
}

// where finds where a rank is: in the collective that it has not completed, or else in its last other
// operation. Of several operations that failed one after the other the first counts, because the later
// errors follow from it.
func (a *analysis) where(d *Dump) place {
	p := place{d: d}
	for i := len(d.Ops) - 1; i >= 0 && d.Ops[i].State == Failed; i-- {
		p.op, p.past = &d.Ops[i], true
	}
	for i := len(d.Ops) - 1; i >= 0; i-- {
		o := &d.Ops[i]
		if o.blocks() && (p.op == nil || p.past || o.Kind.gathers() && !p.op.Kind.gathers()) {
			p.op, p.past = o, false
		}
	}
	if p.op == nil {
		for i := range d.Ops {
			if d.Ops[i].Kind != Region {
				p.last = &d.Ops[i]
			}
		}
	}
	if p.op != nil {
		from, _ := p.op.earliest()
		to := a.end
		if !d.Dumped.IsZero() {
			to = d.Dumped
		}
		switch {
		case p.op.State == Waiting:
			from = p.op.Since
		case p.past && !p.op.Since.IsZero():
			to = p.op.Since
		}
		if !from.IsZero() && to.After(from) {
			p.wait = to.Sub(from)
		}
	}
	return p
}

// comm returns a rank's communicator with an id.
func (d *Dump) comm(id uint32) (CommName, bool) {
	for i := len(d.Comms) - 1; i >= 0; i-- {
		if d.Comms[i].ID == id {
			return d.Comms[i], true
		}
	}
	return CommName{}, false
}

// group is a communicator as all its ranks know it, for its collectives or for its agreements.
type group struct {
	id         uint32
	leader     int
	agreements bool
}

// stand is the operation of one number of a communicator that ranks are in.
type stand struct {
	g     group
	seq   uint32
	start int // of a persistent collective
}

func standOf(d *Dump, o *Operation) (s stand, c CommName) {
	c, _ = d.comm(o.Comm)
	s = stand{group{o.Comm, c.Leader, o.Kind.Agreement()}, o.Seq, 0}
	if o.Form == backend.Persistent {
		s.start = o.Tag
	}
	return s, c
}

// gathering is a collective that ranks are in, and where the members of its communicator are.
type gathering struct {
	stand
	comm    CommName
	in      map[string][]int // those that are in it, by what they called
	texts   []string         // what they called: what fewer called comes first
	away    []int            // those that have not reached it
	begun   []int            // those that began it and do not wait
	ahead   []int            // those that have completed it
	longest time.Duration    // for which one has been in it
	past    bool             // the calls of all that were in it have failed
}

// collective reports which ranks are in the first collective that ranks are in, and which are not.
//
//  1. Find that collective.
//  2. Find out where each member of its communicator is.
//  3. Report different calls, or else who is not in it, or else that all are.
func (a *analysis) collective() (Finding, bool) {
	at := a.first()
	if at == nil {
		return Finding{}, false
	}
	a.gather(at)
	line := ""
	switch {
	case len(at.texts) > 1:
		line = a.different(at)
	case len(at.away)+len(at.begun) > 0:
		line = a.incomplete(at)
	default:
		line = a.complete(at)
	}
	return Finding{Line: line, Trouble: true}, true
}

// first returns the first collective that ranks are in, nil for none. Of several communicators it takes the largest: ranks of
// the others probably wait for it as well.
func (a *analysis) first() (at *gathering) {
	for _, p := range a.ranks {
		if p.op == nil || !p.op.Kind.gathers() {
			continue
		}
		s, c := standOf(p.d, p.op)
		if at == nil || c.Size > at.comm.Size || s.g == at.g && (s.seq < at.seq || s.seq == at.seq && s.start < at.start) {
			at = &gathering{stand: s, comm: c, in: make(map[string][]int), past: true}
		}
	}
	return at
}

// gather finds out where the members are.
func (a *analysis) gather(at *gathering) {
	gaveUp := a.gaveUp(at.stand)
	for r, p := range a.ranks {
		if p.d == nil {
			if at.comm.Size == len(a.ranks) {
				at.away = append(at.away, r)
			}
			continue
		}
		var s stand
		there := p.op != nil && p.op.Kind.gathers()
		if there {
			s, _ = standOf(p.d, p.op)
		}
		here := there && s == at.stand
		// A file has no room for the names of all communicators. A rank that is in the operation is a member.
		if c, member := p.d.comm(at.g.id); (!member || c.Leader != at.g.leader) && !here {
			continue
		}
		switch {
		case here && !gaveUp.IsZero() && p.op.Begun.After(gaveUp):
			a.ranks[r].late = p.op.Begun.Sub(gaveUp)
			at.away = append(at.away, r)
		case here:
			text := a.call(p.op)
			if at.in[text] == nil {
				at.texts = append(at.texts, text)
			}
			at.in[text] = append(at.in[text], r)
			at.longest, at.past = max(at.longest, p.wait), at.past && p.past
		case there && s.g == at.g && (s.seq > at.seq || s.start > at.start), a.through(p.d, at.stand):
			at.ahead = append(at.ahead, r)
		case p.d.begun(at.stand):
			at.begun = append(at.begun, r)
		default:
			at.away = append(at.away, r)
		}
	}
	slices.SortStableFunc(at.texts, func(x, y string) int { return len(at.in[x]) - len(at.in[y]) })
}

// name returns the name of a call, with the number of the collective and the communicator.
func (at *gathering) name(call string) string {
	return insert(call, numberText(at.seq, at.start)+at.comm.of())
}

// different reports that ranks are in different calls.
func (a *analysis) different(at *gathering) string {
	var parts []string
	for i, call := range a.shorten(at.texts) {
		ranks := at.in[at.texts[i]]
		parts = append(parts, fmt.Sprintf("%s %s in %s", ranksText(ranks, i == 0), be(ranks, at.past), at.name(call)))
	}
	line := parts[0] + " while " + strings.Join(parts[1:], " and ") + waiting(at.longest)
	if len(at.away) > 0 {
		line += "; " + a.absent(at.away)
	}
	return line
}

// incomplete reports that ranks wait for others.
func (a *analysis) incomplete(at *gathering) string {
	who := at.in[at.texts[0]]
	verb := strings.TrimSpace(have(who)) + " waited"
	if at.past {
		verb = "had waited"
	}
	waits := fmt.Sprintf("where %s %s", ranksText(who, true), verb)
	if at.longest >= time.Microsecond {
		waits += " " + duration(at.longest)
	}
	missing, format := at.away, "%s not reached %s, %s: "
	if len(at.away) == 0 {
		missing, format = at.begun, "%s begun %s, %s, without waiting for it: "
	}
	return fmt.Sprintf(format, ranksText(missing, true)+have(missing), at.name(shortName(at.texts[0])), waits) + a.absent(missing)
}

// complete reports that all ranks are in the collective, or have been through it, and why.
func (a *analysis) complete(at *gathering) string {
	who, name := at.in[at.texts[0]], at.name(shortName(at.texts[0]))
	line := fmt.Sprintf("all ranks %s in %s%s", be([]int{0, 1}, at.past), name, waiting(at.longest))
	if len(at.ahead) > 0 {
		line = fmt.Sprintf("%s %s in %s, which %s been through%s", ranksText(who, true), be(who, at.past), name, ranksText(at.ahead, false)+have(at.ahead), waiting(at.longest))
	}
	if bad := slices.DeleteFunc(slices.Clone(who), func(r int) bool { return !a.ranks[r].wrongArgument() }); len(bad) > 0 {
		line = fmt.Sprintf("%s called %s with an argument error (%v)", ranksText(bad, true), name, backend.Sentinel(a.ranks[bad[0]].op.Code))
	}
	if why := a.reason(); why != "" {
		line += ": " + why
	}
	return line
}

// wrongArgument reports whether the rank's operation has failed because of the rank's own arguments.
func (p *place) wrongArgument() bool {
	if !p.past {
		return false
	}
	switch backend.Sentinel(p.op.Code) {
	case backend.ErrBuffer, backend.ErrCount, backend.ErrType, backend.ErrRoot, backend.ErrOp:
		return true
	}
	return false
}

// through reports whether a rank has completed the collective, or a later one of the communicator.
func (a *analysis) through(d *Dump, s stand) bool {
	for i := range d.Ops {
		o := &d.Ops[i]
		if o.Kind.gathers() && o.Kind.Agreement() == s.g.agreements && o.State == Done && o.Comm == s.g.id && o.Form != backend.Persistent && s.start == 0 && o.Seq >= s.seq {
			return true
		}
	}
	return false
}

// absent returns what is known of ranks that are elsewhere.
func (a *analysis) absent(ranks []int) string {
	var texts []string
	said := make(map[string][]int)
	for _, r := range ranks {
		text := a.state(r)
		if said[text] == nil {
			texts = append(texts, text)
		}
		said[text] = append(said[text], r)
	}
	for i, t := range texts {
		if len(texts) > 1 || len(ranks) > 1 {
			texts[i] = ranksText(said[t], false) + ": " + t
			if i == 0 {
				texts[i] = ranksText(said[t], true) + ": " + t
			}
		} else {
			texts[i] = "it " + t
		}
	}
	return strings.Join(texts, "; ")
}

// state returns where a rank is for which others wait.
func (a *analysis) state(r int) string {
	p := a.ranks[r]
	switch {
	case p.d == nil:
		return "has left no record"
	case p.late > 0:
		return "came " + duration(p.late) + " after that"
	case p.op != nil && p.past:
		return fmt.Sprintf("was in %s, which ended with %q%s", a.describe(p.d, p.op), backend.Sentinel(p.op.Code), waiting(p.wait))
	case p.op != nil && p.d.dead(a):
		return "is in " + a.describe(p.d, p.op) + ", or has ended there" + waiting(p.wait)
	case p.op != nil:
		return "is in " + a.describe(p.d, p.op) + waiting(p.wait)
	case !p.d.Left.IsZero():
		return "has left the job in good order" + a.after(p)
	case p.last == nil:
		return "has made no operation yet"
	case p.d.dead(a):
		return "is in no operation, or has ended" + a.after(p)
	}
	return "is in no operation" + a.after(p)
}

// dead reports whether a rank may have been killed: others have dumped, and it has not.
func (d *Dump) dead(a *analysis) bool { return d.Dumped.IsZero() && !a.end.IsZero() }

// after describes a rank's last operation.
func (a *analysis) after(p place) string {
	if p.last == nil {
		return ""
	}
	text := ", after " + a.describe(p.d, p.last)
	to := a.end
	if !p.d.Dumped.IsZero() {
		to = p.d.Dumped
	}
	if began, exact := p.last.earliest(); !began.IsZero() && to.After(began) && p.d.Left.IsZero() {
		text += ", which began "
		if !exact {
			text += "at most "
		}
		text += duration(to.Sub(began)) + " before"
	}
	return text
}

// quiet reports on a job in which no rank is in an operation.
func (a *analysis) quiet() Finding {
	var missing, left []int
	lasts := make(map[string]bool)
	for r, p := range a.ranks {
		switch {
		case p.d == nil:
			missing = append(missing, r)
			continue
		case !p.d.Left.IsZero():
			left = append(left, r)
		}
		text := ""
		for i := len(p.d.Ops) - 1; i >= 0; i-- {
			if o := &p.d.Ops[i]; o.Kind.Collective() && o.Comm == 0 {
				text = a.describe(p.d, o)
				break
			}
		}
		lasts[text] = true
	}
	switch {
	case len(missing) > 0:
		return Finding{Line: fmt.Sprintf("%s left no record; the others are in no operation", ranksText(missing, true)+have(missing)), Trouble: true}
	case len(lasts) > 1:
		var parts []string
		for r, p := range a.ranks {
			parts = append(parts, fmt.Sprintf("rank %d%s", r, strings.Replace(a.after(p), ", after ", " after ", 1)))
		}
		return Finding{Line: "no rank is in an operation, and they have not got equally far: " + strings.Join(parts[:min(len(parts), 8)], "; "), Trouble: true}
	case len(left) == len(a.ranks):
		return Finding{Line: "all ranks have finished the same operations and left the job"}
	}
	return Finding{Line: "all ranks have finished the same operations"}
}

// reason is the error of the first dump. It is used if the operations do not show the cause.
func (a *analysis) reason() string {
	if d := first(a.dumps, func(d *Dump) bool { return d.Reason != "" }); d != nil {
		return d.Reason
	}
	return ""
}

// first returns the dump that was made first of those that fit, nil if there is none.
func first(dumps []*Dump, fits func(*Dump) bool) (first *Dump) {
	for _, d := range dumps {
		if fits(d) && (first == nil || d.Dumped.Before(first.Dumped)) {
			first = d
		}
	}
	return first
}
