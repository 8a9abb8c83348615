package flight

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
)

// How operations are called in findings.

// call describes a collective by its name and, in parentheses, the arguments that must be the same on all ranks.
func (a *analysis) call(o *Operation) string {
	name := a.name(o)
	if o.Named || o.Kind.Agreement() {
		return name
	}
	var facts []string
	if o.Kind != Kind(backend.Barrier) {
		facts = append(facts, a.typeName(o.Type))
		switch coll := backend.Coll(o.Kind); {
		case coll == backend.Gatherv, coll == backend.Scatterv, coll == backend.Alltoallv, coll.Neighbor(): // each rank has another
		default:
			facts = append(facts, fmt.Sprintf("count %d", o.Count))
		}
	}
	if o.Op != 0 {
		facts = append(facts, "op "+o.Op.String())
	}
	if o.Peer >= 0 {
		facts = append(facts, fmt.Sprintf("root %d", o.Peer))
	}
	if len(facts) == 0 {
		return name
	}
	return name + " (" + strings.Join(facts, ", ") + ")"
}

// name is an operation's name in its form.
func (a *analysis) name(o *Operation) string {
	name := o.Kind.String()
	switch {
	case o.Named:
		name = a.typeName(o.Type)
	case o.Views:
		name = "AlltoallView"
	}
	switch {
	case o.Form == backend.Nonblocking:
		return "I" + strings.ToLower(name[:1]) + name[1:]
	case o.prepares():
		return name + "Init"
	case o.Form == backend.Persistent:
		return "persistent " + name
	}
	return name
}

func (a *analysis) typeName(id uint32) string {
	if name := a.types[id]; name != "" {
		return name
	}
	return backend.TypeName(id)
}

// describe names an operation with its partner or number.
func (a *analysis) describe(d *Dump, o *Operation) string {
	c, _ := d.comm(o.Comm)
	of, name := c.of(), a.name(o)
	tag := fmt.Sprintf(", tag %d", o.Tag)
	if o.Tag == -1 {
		tag = ", any tag"
	}
	switch o.Kind {
	case Send, Ssend:
		return fmt.Sprintf("%s to %d%s%s", name, o.Peer, tag, of)
	case Recv, Sendrecv, RecvAppend, Probe, Mprobe, MessageRecv:
		from := strconv.Itoa(o.Peer)
		if o.Peer == backend.AnySource {
			from = "any rank"
		}
		return fmt.Sprintf("%s from %s%s%s", name, from, tag, of)
	case WaitAny:
		return fmt.Sprintf("WaitAny of %d requests%s", o.Count, of)
	case Lock:
		return fmt.Sprintf("Lock of rank %d's part of window %d%s", o.Peer, o.Seq, of)
	case Put, Get, Accumulate, GetAccumulate, FetchAndOp, CompareAndSwap, Flush:
		return fmt.Sprintf("%s at rank %d%s", name, o.Peer, of)
	case LockAll:
		return fmt.Sprintf("LockAll of window %d%s", o.Seq, of)
	case Region:
		return fmt.Sprintf("region %s%s", name, of)
	case CreateGroup:
		return fmt.Sprintf("CreateGroup%s%s", tag, of)
	}
	start := 0
	if o.Form == backend.Persistent {
		start = o.Tag
	}
	return name + numberText(o.Seq, start) + of
}

// of names a communicator after an operation, if it is not the world.
func (c CommName) of() string {
	if c.Name == "" || c.Name == "world" {
		return ""
	}
	return " of " + c.Name
}

// numberText is the number of a collective, and of a start of a persistent one.
func numberText(seq uint32, start int) string {
	if start > 0 {
		return fmt.Sprintf(" #%d (start %d)", seq, start)
	}
	return fmt.Sprintf(" #%d", seq)
}
