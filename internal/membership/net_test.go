package membership

import "slices"

// plan is what happens.
type plan struct {
	ranks   int
	needs   [][2]int // who needs a link with whom
	leavers [most]bool
	victim  int  // dies; below 0: none
	fails   int  // ends of links that are not taken
	walks   bool // one random order is run, and not every one
}

const most = 5 // ranks

// netLink is a link of the network. Side 0 is the end of the lower rank.
type netLink struct {
	ranks  [2]int
	came   [2]bool     // the end has been offered to its rank
	closed [2]bool     // the rank has closed it
	flight [2][]Notice // to the end

}

// netRank is a rank.
type netRank struct {
	m      *Machine
	held   [most]int      // the link with each peer; below 0: none
	queue  [most][]Notice // waits for the link
	trying [most]bool
	asked  [most]bool
	due    []int // suspected
	told   bool  // another rank has declared it lost
	step   int   // of its leaving
	late   bool  // a step of that was given up
	gone   bool  // it has left, and no process listens
	dead   bool
}

// net is the ranks and what is on its way between them.
type net struct {
	plan
	needed [most]bool // of needs
	died   bool
	fails  int
	links  []netLink
	ranks  []*netRank
}

// netHost is the Host of a rank.
type netHost struct {
	w *net
	r int
}

// What stands in a flight for the first frame of a link, and for a message.
var heartbeat, message = Notice{Kind: 255}, Notice{Kind: 254}

func newNet(p plan) *net {
	w := &net{plan: p, fails: p.fails, ranks: make([]*netRank, p.ranks)}
	for r := range w.ranks {
		var peers []*Peer
		for q := range w.ranks {
			if q == r {
				peers = append(peers, nil)
			} else {
				peers = append(peers, &Peer{})
			}
		}
		w.ranks[r] = &netRank{held: nobody}
		w.ranks[r].m = New(r, peers, true, reach, netHost{w, r})
	}
	for r := 1; r < p.ranks; r++ {
		w.links = append(w.links, netLink{ranks: [2]int{0, r}, came: [2]bool{true, true}})
		for _, pair := range [][2]int{{0, r}, {r, 0}} {
			w.ranks[pair[0]].m.Connected(pair[1])
			w.ranks[pair[0]].held[pair[1]] = r - 1
		}
	}
	return w
}

const reach = 5

var nobody = [most]int{-1, -1, -1, -1, -1}

// clone copies a net.
func (w *net) clone() *net {
	c := *w
	c.links, c.ranks = slices.Clone(w.links), slices.Clone(w.ranks)
	for i := range c.links {
		for s := range 2 {
			c.links[i].flight[s] = slices.Clone(c.links[i].flight[s])
		}
	}
	for r, old := range w.ranks {
		n := *old
		for q := range n.queue {
			n.queue[q] = slices.Clone(n.queue[q])
		}
		m := *old.m
		m.LostList, m.departed, m.host = slices.Clone(m.LostList), slices.Clone(m.departed), netHost{&c, r}
		m.Peers = slices.Clone(m.Peers)
		for q, p := range m.Peers {
			if p != nil {
				state := *p
				m.Peers[q] = &state
			}
		}
		n.m = &m
		c.ranks[r] = &n
	}
	return &c
}

// key tells states apart.
func (w *net) key() string {
	var b []byte
	num := func(list ...int) {
		for _, n := range list {
			b = append(b, byte(n))
		}
	}
	is := func(list ...bool) {
		for _, f := range list {
			if f {
				num(1)
			} else {
				num(0)
			}
		}
	}
	notices := func(list []Notice) {
		num(len(list))
		for _, n := range list {
			is(n.Hub)
			num(int(n.Kind), len(n.Ranks))
			num(n.Ranks...)
		}
	}
	is(append(w.needed[:], w.died)...)
	num(w.fails)
	for i := range w.links {
		if l := &w.links[i]; l.closed != [2]bool{true, true} {
			num(i, l.ranks[0], l.ranks[1])
			for s := range 2 {
				is(l.came[s], l.closed[s])
				notices(l.flight[s])
			}
		}
	}
	for _, r := range w.ranks {
		m := r.m
		num(r.step, int(m.stage), m.Hub, m.promise+1, m.alone, m.wide, len(m.LostList))
		num(m.LostList...)
		is(r.told, r.late, r.gone, r.dead, m.asHub)
		for q, p := range m.Peers {
			if num(r.held[q]); p != nil {
				num(int(p.Link), int(p.Standing), p.Waited, p.failed)
				is(p.Acked, p.asHub, p.deaf, r.trying[q])
				notices(r.queue[q])
			}
		}
	}
	return string(b)
}

func side(l *netLink, r int) int {
	if l.ranks[0] == r {
		return 0
	}
	return 1
}

func (h netHost) Ask(r int, pause bool) {
	h.w.ranks[h.r].trying[r] = true
	if h.w.walks {
		h.w.ranks[h.r].asked[r] = pause
	}
}
func (h netHost) Begin(int) {}
func (h netHost) Moved()    {}

func (h netHost) First(r int) { h.w.put(h.r, r, heartbeat) }

// put puts a notice on a link.
func (w *net) put(from, to int, n Notice) {
	if i := w.ranks[from].held[to]; i >= 0 {
		l := &w.links[i]
		if s := side(l, to); !l.closed[s] {
			l.flight[s] = append(l.flight[s], n)
		}
	}
}

func (h netHost) Send(r int, n Notice) {
	x := h.w.ranks[h.r]
	switch p := x.m.Peers[r]; {
	case p.Link == Ended:
	case p.Link == Up || p.Link == Fresh && n.Kind == Goodbye:
		h.w.put(h.r, r, n)
	default:
		x.m.Need(r)
		x.queue[r] = append(x.queue[r], n)
	}
}

func (h netHost) Suspect(r int, _ Why) { h.w.ranks[h.r].due = append(h.w.ranks[h.r].due, r) }

func (h netHost) HasLeft(r int) {
	if x := h.w.ranks[h.r]; x.held[r] < 0 {
		x.queue[r] = nil
	}
}

// hangUp closes a rank's end of its link with another one.
func (w *net) hangUp(r, q int) {
	if i := w.ranks[r].held[q]; i >= 0 {
		l := &w.links[i]
		s := side(l, r)
		l.closed[s], l.flight[s] = true, nil
		w.ranks[r].held[q] = -1
	}
}

// deliver lets a rank take the next notice of a link.
func (w *net) deliver(r, q int) {
	x := w.ranks[r]
	l := &w.links[x.held[q]]
	s := side(l, r)
	n := l.flight[s][0]
	l.flight[s] = l.flight[s][1:]
	if x.m.Confirmed(q) {
		for _, n := range x.queue[q] {
			w.put(r, q, n)
		}
		x.queue[q] = nil
	}
	switch n.Kind {
	case Goodbye:
		x.m.Said(q, n.Hub)
	case HaveLeft:
		x.m.Told(q, n)
	case IsLost:
		switch {
		case x.m.Peers[q].Standing == Lost:
		case n.Ranks[0] == r:
			x.told = true
		default:
			w.lose(r, n.Ranks[0], AnotherRank)
		}
	}
}

// arrived reports whether something has arrived for a rank.
func (w *net) arrived(r, q int) bool {
	i := w.ranks[r].held[q]
	return i >= 0 && len(w.links[i].flight[side(&w.links[i], r)]) > 0
}

// ended reports whether the other end of a rank's link is closed, and all is read.
func (w *net) ended(r, q int) bool {
	i := w.ranks[r].held[q]
	return i >= 0 && !w.arrived(r, q) && w.links[i].closed[side(&w.links[i], q)]
}

// lose is what a rank does with a loss.
func (w *net) lose(r, q int, by Finder) {
	x := w.ranks[r]
	if !x.m.Lose(q, by) {
		return
	}
	for to, p := range x.m.Peers {
		if p != nil && p.Standing != Lost && p.Link != None {
			netHost{w, r}.Send(to, Notice{Kind: IsLost, Ranks: []int{q}})
		}
	}
	x.m.Rehub()
}

// settle does what a rank does after each event: it takes ranks for lost, after it has read what has arrived.
func (w *net) settle(r int) {
	x := w.ranks[r]
	for len(x.due) > 0 {
		q := x.due[0]
		x.due = x.due[1:]
		for from := range w.ranks {
			for from != r && w.arrived(r, from) {
				w.deliver(r, from)
			}
		}
		w.lose(r, q, ThisRank)
	}
	for _, q := range x.m.LostList {
		if x.m.Peers[q].Link != Ended {
			for w.arrived(r, q) {
				w.deliver(r, q)
			}
			w.put(r, q, Notice{Kind: IsLost, Ranks: []int{q}})
			w.hangUp(r, q)
			x.m.Cut(q)
			x.queue[q] = nil
		}
	}
	if x.m.Spreads() {
		x.m.Spread()
	}
}
