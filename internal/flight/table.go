package flight

import (
	"fmt"
	"io"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// Line is an operation for people and programs to read.
type Line struct {
	Rank   int     `json:"rank"`
	Ticket uint64  `json:"ticket"` // the order in which the rank began its operations
	Begun  string  `json:"begun,omitempty"`
	Ago    float64 `json:"ago,omitempty"`         // seconds from then to the dump
	AtMost float64 `json:"ago_at_most,omitempty"` // seconds from before it began to the dump, where begun is not known
	Name   string  `json:"op"`
	Comm   string  `json:"comm"`
	Type   string  `json:"type,omitempty"`
	Count  int64   `json:"count"` // elements of a collective, bytes of a message
	Root   *int    `json:"root,omitempty"`
	Peer   *int    `json:"peer,omitempty"`
	Tag    *int    `json:"tag,omitempty"`
	Seq    *uint32 `json:"seq,omitempty"`
	State  string  `json:"state"` // open, waiting, done, or the error
	text   string
}

// Lines returns the last n operations of each rank.
func Lines(dumps []*Dump, n int) (lines []Line) {
	a := newAnalysis(dumps)
	for _, d := range dumps {
		for i := max(0, len(d.Ops)-n); i < len(d.Ops); i++ {
			lines = append(lines, a.line(d, &d.Ops[i]))
		}
	}
	return lines
}

func (a *analysis) line(d *Dump, o *Operation) Line {
	c, _ := d.comm(o.Comm)
	l := Line{Rank: d.Rank, Ticket: o.Ticket, Name: a.name(o), Comm: c.Name, Count: o.Count, State: "done", text: a.describe(d, o)}
	if c.Name == "" {
		l.Comm = fmt.Sprintf("#%d", o.Comm)
	}
	if o.Type != 0 && !o.Named {
		l.Type = a.typeName(o.Type)
	}
	end := d.Dumped
	if end.IsZero() {
		end = a.end
	}
	if t, exact := o.earliest(); exact {
		l.Begun = t.UTC().Format(time.RFC3339Nano)
		l.Ago = max(0, end.Sub(t).Seconds())
	} else if !t.IsZero() {
		l.AtMost = max(0, end.Sub(t).Seconds())
	}
	if o.Kind.gathers() {
		l.Seq = &o.Seq
		if o.Peer >= 0 && !o.Named {
			l.Root = &o.Peer
		}
	} else if o.Kind != Region {
		l.Peer, l.Tag = &o.Peer, &o.Tag
	}
	switch o.State {
	case Open:
		l.State = "open"
	case Waiting:
		l.State = "waiting"
	case Failed:
		l.State = backend.Sentinel(o.Code).Error()
	}
	return l
}

// WriteTable writes operations as a table.
func WriteTable(w io.Writer, lines []Line) error {
	if _, err := fmt.Fprintf(w, "%5s %8s %14s  %-44s %-10s %10s  %s\n", "rank", "ticket", "began before", "operation", "type", "count", "state"); err != nil {
		return err
	}
	for _, l := range lines {
		ago := "-"
		switch {
		case l.Ago > 0:
			ago = fmt.Sprintf("%.6f s", l.Ago)
		case l.AtMost > 0:
			ago = fmt.Sprintf("<%.6f s", l.AtMost)
		}
		text := l.text
		if l.Root != nil {
			text += fmt.Sprintf(", root %d", *l.Root)
		}
		if _, err := fmt.Fprintf(w, "%5d %8d %14s  %-44s %-10s %10d  %s\n", l.Rank, l.Ticket, ago, text, l.Type, l.Count, l.State); err != nil {
			return err
		}
	}
	return nil
}
