package membership

import (
	"fmt"
	"slices"
)

// event is something that can happen.
type event struct {
	name    string
	do      func(w *net)
	outside bool
	again   bool // is repeated before time passes
}

// events returns what can happen. In calm nothing can but what time brings.
func (w *net) events() (list []event) {
	add := func(r int, do func(w *net), format string, facts ...any) {
		list = append(list, event{name: fmt.Sprintf(format, facts...), do: func(w *net) {
			if do(w); r >= 0 && !w.ranks[r].dead {
				w.settle(r)
			}
		}})
	}
	for r, x := range w.ranks {
		if x.dead || x.m.Closed() {
			continue
		}
		for q := range w.ranks {
			switch {
			case q == r:
			case w.arrived(r, q):
				add(r, func(w *net) { w.deliver(r, q) }, "rank %d reads from rank %d", r, q)
			case w.ended(r, q):
				add(r, func(w *net) {
					w.hangUp(r, q)
					w.ranks[r].m.LinkEnded(q)
				}, "rank %d sees the link with rank %d end", r, q)
			}
		}
	}
	for i := range w.links {
		for s, r := range w.links[i].ranks {
			if w.links[i].came[s] || w.ranks[r].dead {
				continue
			}
			add(-1, func(w *net) { w.take(i, s) }, "rank %d takes link %d", r, i)
			if w.fails > 0 {
				add(-1, func(w *net) {
					w.fails--
					w.links[i].came[s], w.links[i].closed[s] = true, true
					w.attempted(i, r)
				}, "rank %d fails to take link %d", r, i)
			}
		}
	}
	busy := len(list) > 0
	for r, x := range w.ranks { // in every order, from the third link on, a rank tries again when nothing else happens
		for q, to := range w.ranks {
			switch {
			case !x.trying[q] || x.dead || x.m.Closed():
			case to.dead || to.gone:
				if w.walks {
					add(r, func(w *net) { w.refused(r, q) }, "rank %d finds nobody at rank %d", r, q)
					list[len(list)-1].outside, list[len(list)-1].again = true, true
				}
			case w.walks || !busy || len(w.links) < len(w.ranks)+1:
				add(-1, func(w *net) { w.attempt(r, q) }, "rank %d tries to reach rank %d", r, q)
				list[len(list)-1].outside, list[len(list)-1].again = x.asked[q], x.asked[q]
			}
		}
	}
	for i, need := range w.needs {
		if x := w.ranks[need[0]]; !w.needed[i] && !x.dead && x.step == 0 {
			add(need[0], func(w *net) {
				w.needed[i] = true
				w.ranks[need[0]].m.Need(need[1])
			}, "rank %d needs rank %d", need[0], need[1])
			list[len(list)-1].outside = true
		}
	}
	for l, x := range w.ranks {
		if w.leavers[l] && !x.dead && w.mayStep(l, false) {
			add(l, func(w *net) { w.leave(l) }, "rank %d goes on with its leaving", l)
		}
	}
	if v := w.victim; v >= 0 && !w.died && !w.ranks[v].gone {
		for _, lost := range []bool{false, true} {
			add(-1, func(w *net) { w.die(v, lost) }, "rank %d dies, its last notices are lost: %v", v, lost)
			list[len(list)-1].outside = true
		}
	}
	return list
}

// busy reports whether anything happens that does not come from outside.
func busy(events []event) bool {
	return slices.ContainsFunc(events, func(ev event) bool { return !ev.outside })
}

// die ends a rank. What it has sent last may be lost.
func (w *net) die(v int, lost bool) {
	w.died, w.ranks[v].dead = true, true
	for i := range w.links {
		l := &w.links[i]
		if l.ranks[0] != v && l.ranks[1] != v {
			continue
		}
		s := side(l, v)
		l.came[s], l.closed[s], l.flight[s] = true, true, nil
		if lost {
			l.flight[1-s] = nil
		}
	}
	w.ranks[v].held = nobody
}

// attempt is an attempt of a rank to reach one that listens.
func (w *net) attempt(r, q int) {
	x, to := w.ranks[r], w.ranks[q]
	if r > q {
		x.trying[q] = false // until both ends are taken or not
		w.links = append(w.links, netLink{ranks: [2]int{q, r}})
		return
	}
	if to.m.Peers[r].Standing == Lost {
		x.told = true
	} else if to.m.Requested(r); !to.m.Closed() {
		x.m.Answered(q)
	}
	w.settle(q)
	x.trying[q] = !x.m.Attempted(q, false, false) && (w.walks || x.m.Peers[q].Link == Asked && to.m.Closed())
	x.asked[q] = w.walks
	w.settle(r)
}

// refused is an attempt of a rank to reach one that does not listen any more.
func (w *net) refused(r, q int) {
	w.ranks[r].trying[q] = !w.ranks[r].m.Attempted(q, false, true)
}

// attempted tells the rank that has dialed that its attempt is over.
func (w *net) attempted(i, r int) {
	if l := &w.links[i]; r == l.ranks[1] && !w.ranks[r].dead {
		w.ranks[r].trying[l.ranks[0]] = w.ranks[r].trying[l.ranks[0]] || !w.ranks[r].m.Attempted(l.ranks[0], false, false)
		w.settle(r)
	}
}

// take offers an end of a new link to its rank.
func (w *net) take(i, s int) {
	l := &w.links[i]
	r, q := l.ranks[s], l.ranks[1-s]
	x := w.ranks[r]
	l.came[s] = true
	take, word := false, (*Notice)(nil)
	if !x.gone {
		take, word = x.m.Came(q)
	}
	if word != nil {
		l.flight[1-s] = append(l.flight[1-s], *word)
	}
	if take {
		x.held[q] = i
		x.m.Joined(q)
	} else {
		l.closed[s], l.flight[s] = true, nil
	}
	w.settle(r)
	w.attempted(i, r)
}

// mayStep reports whether a rank goes on with its leaving; late: its time is over.
func (w *net) mayStep(r int, late bool) bool {
	x := w.ranks[r]
	switch x.step {
	case 0: // it begins at any time
		return true
	case 1: // links that come, and what waits for them
		for q, p := range x.m.Peers {
			if p != nil && p.Link != Ended && !p.Over() && (p.Link == Fresh || x.held[q] < 0 && len(x.queue[q]) > 0) {
				return late
			}
		}
		return true
	case 2: // the hub lets the others leave first, for a moment
		return true
	case 3:
		return late || x.m.MayEnd()
	}
	return !x.gone
}

func (w *net) leave(r int) {
	x := w.ranks[r]
	switch x.step++; x.step {
	case 3:
		for q, p := range x.m.Peers {
			if p != nil && p.Link == Up {
				w.put(r, q, message)
			}
		}
		x.m.Part()
	case 4:
		for q := range w.ranks {
			if q != r {
				w.hangUp(r, q)
			}
		}
		x.m.End()
	case 5:
		x.gone = true
	}
}

// tick lets time pass, and reports whether anything can happen then.
func (w *net) tick() bool {
	for range 4 * reach {
		for r, x := range w.ranks {
			if x.dead || x.m.Closed() {
				continue
			}
			for q := range w.ranks {
				if to := w.ranks[q]; q != r && x.trying[q] && (to.dead || to.gone) {
					w.refused(r, q)
				}
			}
			x.m.Tick()
			w.settle(r)
		}
		if busy(w.events()) {
			return true
		}
	}
	for l, x := range w.ranks {
		if w.leavers[l] && !x.dead && w.mayStep(l, true) {
			x.late = true
			w.leave(l)
			w.settle(l)
			return true
		}
	}
	return false
}

// wrong returns what must never be, "" normally.
func (w *net) wrong() string {
	for r, x := range w.ranks {
		if x.told && !x.dead && !w.orphan(r) {
			return fmt.Sprintf("rank %d lives and was declared lost", r)
		}
		for q, p := range x.m.Peers {
			if p != nil && p.Standing == Lost && !w.ranks[q].dead && !x.dead && !w.orphan(q) {
				return fmt.Sprintf("rank %d has lost rank %d, which lives", r, q)
			}
			if p != nil && p.Standing == Left && x.held[q] >= 0 && w.ranks[q].step < 5 && slices.ContainsFunc(w.links[x.held[q]].flight[side(&w.links[x.held[q]], r)], func(n Notice) bool { return n.Kind == message.Kind }) {
				return fmt.Sprintf("for rank %d rank %d has left, and a message from it is not read", r, q)
			}
			if p != nil && p.Standing == Left && w.ranks[q].step < 3 {
				return fmt.Sprintf("for rank %d rank %d has left, which has not", r, q)
			}
		}
	}
	return ""
}

// orphan reports whether a rank has said goodbye, and its hub, or the one that has promised to tell of it, has died.
func (w *net) orphan(r int) bool {
	m := w.ranks[r].m
	return m.Parted() && w.died && (m.Hub == w.victim || m.promise == w.victim)
}

// unfinished returns what must not be in the end.
func (w *net) unfinished() string {
	for l, x := range w.ranks {
		if w.leavers[l] && !x.dead && !x.gone {
			return fmt.Sprintf("rank %d does not end its leaving", l)
		}
		if x.late {
			return fmt.Sprintf("rank %d has left because its time was over", l)
		}
	}
	for r, x := range w.ranks {
		if x.dead || x.gone {
			continue
		}
		for q, p := range x.m.Peers {
			for third, y := range w.ranks {
				if p != nil && !y.dead && !y.gone && third != q && (p.Standing == Lost) != (y.m.Peers[q].Standing == Lost) && third > r {
					return fmt.Sprintf("rank %d is %+v for rank %d, and %+v for rank %d", q, *p, r, *y.m.Peers[q], third)
				}
			}
			switch to := w.ranks[q]; {
			case p == nil:
			case to.dead && !(p.Standing == Lost || p.Standing == Left && to.m.Parted()):
				return fmt.Sprintf("rank %d has died, and for rank %d it is %+v", q, r, *p)
			case to.gone && !to.dead && p.Standing != Left && !(p.Standing == Lost && w.orphan(q)):
				return fmt.Sprintf("rank %d has left, and for rank %d it is %+v", q, r, *p)
			case !to.dead && !to.gone && (w.waits(r, q) && p.Link != Up || len(x.queue[q]) > 0):
				return fmt.Sprintf("rank %d waits for a link with rank %d, which is %+v; %v waits for it", r, q, *p, x.queue[q])
			}
		}
	}
	return ""
}

// waits reports whether a rank needs a link with another one.
func (w *net) waits(r, q int) bool {
	i := slices.Index(w.needs, [2]int{r, q})
	return i >= 0 && w.needed[i]
}
