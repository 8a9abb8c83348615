package membership

// Link is the state of the link to a peer.
type Link uint8

// The states of a link.
const (
	None Link = iota
	Wanted
	Asked
	Fresh
	Up
	Ended
)

// Standing is what has become of a peer.
type Standing uint8

// The standings of a peer.
const (
	Member Standing = iota
	Reported
	Left
	Lost
)

// Peer is the state of a peer. Only the machine writes it.
type Peer struct {
	Link     Link
	Standing Standing
	Acked    bool // it has acknowledged this rank's goodbye
	Waited   int  // ticks without a link, and without an answer
	failed   int  // links in a row that ended before they were confirmed
}

// Linked reports whether there is a link.
func (p *Peer) Linked() bool { return p.Link == Fresh || p.Link == Up }

// Waits reports whether a link is to come.
func (p *Peer) Waits() bool { return p.Link == Wanted || p.Link == Asked }

// Over reports whether the peer has left or is lost.
func (p *Peer) Over() bool { return p.Standing >= Left }

// Why is why a rank is taken for lost.
type Why uint8

// The reasons.
const (
	NoGoodbye   Why = iota // its link has ended without a goodbye
	Unconfirmed            // links with it end before they are confirmed
	Unreachable            // it refuses links, or no process listens at its address
	NoAnswer               // it does not answer a request for a link
)

// Kind is the kind of a notice.
type Kind uint8

// The kinds of notices.
const (
	Goodbye  Kind = iota // the sender leaves
	HaveLeft             // Ranks have left; the receiver's own number there acknowledges its goodbye
	IsLost               // Ranks[0] is lost
)

// Notice is what ranks tell each other.
type Notice struct {
	Kind  Kind
	Ranks []int
	Hub   bool // of HaveLeft: the hub acknowledges
}

// Host carries out what a machine decides. Of the machine it calls only Need.
type Host interface {
	// Ask begins attempts to make a link, at once or after a pause, unless some go on. Each ends with Attempted.
	Ask(rank int, pause bool)
	// Begin puts what a new link begins with before all that waits for it.
	Begin(rank int)
	// First writes the first frame on a new link.
	First(rank int)
	// Send sends a notice, behind what waits for the link. A goodbye does not wait for a link to be confirmed.
	Send(rank int, n Notice)
	// Suspect takes a rank for lost: Lose follows, unless a goodbye is found before.
	Suspect(rank int, why Why)
	// HasLeft is called when a rank has left. Without a link, what waits for one is dropped.
	HasLeft(rank int)
	// Moved is called when there is another hub: notices that went through the old one may be lost with it.
	Moved()
}

// Limits of the attempts to make a link.
const (
	attemptsMost = 20 // links with a rank that end before they are confirmed, in a row
	refusalCosts = 7  // how many of these a refusal counts for: a damaged byte can look like one
	comeTicks    = 3  // ticks in which others may connect by themselves before they are asked
)

// Machine is one rank's view of the membership of its job.
type Machine struct {
	Me       int
	Peers    []*Peer // by rank; nil for this one
	OnDemand bool    // links are made when they are needed
	Reach    int     // ticks in which a rank that is asked for a link is to answer; 0: no limit

	Hub      int   // see the package
	LostList []int // the ranks that are lost, first lost first
	Parted   bool  // this rank has said goodbye
	Let      bool  // the hub has acknowledged that: it informs the others
	Closed   bool  // this rank has ended its links

	departed []int // have left, and not all others have been told
	alone    int   // ticks without a link to any rank that could be the hub
	wide     int   // how many of those are asked
	host     Host
}

// New returns the machine of a rank.
func New(me int, peers []*Peer, onDemand bool, reach int, host Host) *Machine {
	return &Machine{Me: me, Peers: peers, OnDemand: onDemand, Reach: reach, wide: 1, host: host}
}

// Connected notes a link that was made at the start.
func (m *Machine) Connected(r int) { m.Peers[r].Link = Up }

// Need is called when a link is needed: it begins attempts to make one, if there is none.
func (m *Machine) Need(r int) {
	if m.want(r) {
		m.ask(r, false)
	}
}

// Requested is called when a lower rank asks for a link. One that has left for this rank waits for the acknowledgement,
// which Came gives.
func (m *Machine) Requested(r int) {
	if p := m.Peers[r]; p.Standing == Left && !m.Closed {
		m.host.Ask(r, false)
	} else {
		m.Need(r)
	}
}

// want reports whether a link is to come, and notes that one is needed.
func (m *Machine) want(r int) bool {
	p := m.Peers[r]
	if p.Link == None && m.OnDemand && !m.Closed && !p.Over() {
		p.Link, p.Waited = Wanted, 0
		m.host.Begin(r)
	}
	return p.Waits()
}

func (m *Machine) ask(r int, pause bool) {
	if p := m.Peers[r]; p.Link == Wanted {
		p.Link, p.Waited = Asked, 0
		m.host.Ask(r, pause)
	}
}

// Came judges a new link, which a peer has made or that was made to it. If it is taken, Joined follows. Otherwise the
// host writes the notice on it, if there is one, and ends it: the peer learns why this rank has no use for the link.
func (m *Machine) Came(r int) (take bool, word *Notice) {
	p := m.Peers[r]
	switch {
	case p.Standing == Lost:
		return false, &Notice{Kind: IsLost, Ranks: []int{r}}
	case p.Standing == Left: // it waits for an acknowledgement
		return false, &Notice{Kind: HaveLeft, Ranks: []int{r}, Hub: m.Hub == m.Me}
	case m.Closed && m.Parted:
		return false, &Notice{Kind: Goodbye}
	case m.Closed || p.Linked() || p.Link == Ended:
		return false, nil
	case p.Link == None: // the other end has asked for it
		m.host.Begin(r)
	}
	p.Link, p.Waited = Fresh, 0
	return true, nil
}

// Joined is called when a link that was taken is in its place. A rank that has said goodbye says it on every link: the
// peer would take the end of a link without one for a loss.
func (m *Machine) Joined(r int) {
	m.host.First(r)
	if m.Parted {
		m.host.Send(r, Notice{Kind: Goodbye})
	}
	if m.Hub == m.Me {
		m.greet(r)
	}
}

// Confirmed notes that a frame has come over a link, and reports whether it is the first one.
func (m *Machine) Confirmed(r int) bool {
	p := m.Peers[r]
	if p.Link != Fresh {
		return false
	}
	p.Link, p.failed = Up, 0
	return true
}

// LinkEnded is called when the link with a peer has ended, and all that came over it is read. A link that was not
// confirmed has carried nothing, and is made again. A rank that the hub has reported is not lost if its goodbye was
// lost with its link.
func (m *Machine) LinkEnded(r int) {
	switch p := m.Peers[r]; {
	case !p.Linked():
	case p.Standing == Reported:
		m.left(r)
	case p.Link == Up || p.Over():
		p.Link = Ended
		if !p.Over() && !p.Acked { // one that has acknowledged this rank's goodbye needs its link no more
			m.host.Suspect(r, NoGoodbye)
		}
	default:
		p.Link = Wanted
		if p.failed++; p.failed > attemptsMost && !m.Parted {
			m.host.Suspect(r, Unconfirmed)
		} else {
			m.ask(r, true)
		}
	}
}

// Cut is called when this rank gives a link up for good.
func (m *Machine) Cut(r int) { m.Peers[r].Link = Ended }

// Attempted is called after each attempt to make a link, or to ask for one. It reports whether that was the last one.
// Refused means that the peer does not take this rank for one of its job, deaf that no process listens there.
func (m *Machine) Attempted(r int, refused, deaf bool) (over bool) {
	p := m.Peers[r]
	if m.Closed || !p.Waits() || p.Over() {
		return true
	}
	if refused {
		p.failed += refusalCosts
	}
	if !m.Parted && (refused && p.failed > attemptsMost || deaf && m.judges(r)) {
		p.Link = Wanted
		m.host.Suspect(r, Unreachable)
		return true
	}
	return false
}

// judges reports whether this rank may declare a rank lost because no process listens at its address any more. It may
// if the rank is the hub, or this rank is, and all earlier hubs have ended: then no notice that the rank has left can
// still arrive.
func (m *Machine) judges(r int) bool {
	if r != m.Hub && m.Hub != m.Me {
		return false
	}
	for _, p := range m.Peers[:m.Hub] {
		if p.Link != Ended {
			return false
		}
	}
	return true
}

// Answered notes that a peer shows life in another way than over a link.
func (m *Machine) Answered(r int) { m.Peers[r].Waited = 0 }

// Said handles a goodbye, and acknowledges it: from now on this rank forwards nothing through the rank that leaves,
// which may then end.
func (m *Machine) Said(r int) {
	p := m.Peers[r]
	if p.Standing == Lost {
		return
	}
	ack := Notice{Kind: HaveLeft, Ranks: []int{r}, Hub: m.Hub == m.Me}
	m.note(r)
	if m.OnDemand {
		m.host.Send(r, ack)
	}
}

// note notes that a rank has left.
func (m *Machine) note(r int) {
	p := m.Peers[r]
	if p.Standing == Left {
		return
	}
	p.Standing = Left
	m.host.HasLeft(r)
	if m.OnDemand && m.Hub == m.Me {
		m.departed = append(m.departed, r)
	}
	m.Rehub()
}

// left notes that a rank has left whose goodbye does not arrive here.
func (m *Machine) left(r int) {
	m.Peers[r].Link = Ended
	m.note(r)
}

// Told handles a rank's notice that ranks have left. If there is a link with one, its goodbye arrives there, behind
// its last messages.
func (m *Machine) Told(from int, n Notice) {
	for _, r := range n.Ranks {
		if r == m.Me {
			m.Peers[from].Acked, m.Let = true, m.Let || n.Hub
			continue
		}
		if p := m.Peers[r]; p.Standing == Member {
			if p.Standing = Reported; !p.Linked() {
				m.left(r)
			}
		}
	}
}

// Lose notes that a rank is lost. It reports false if that was decided before, or the rank has left. Rehub and
// CloseLost follow.
func (m *Machine) Lose(r int) bool {
	if m.Closed || m.Peers[r].Over() {
		return false
	}
	m.Peers[r].Standing = Lost
	m.LostList = append(m.LostList, r)
	return true
}

// Rehub determines the hub again after a rank has been lost or has left. All ranks connect to a new hub and repeat
// their notices: those that the old hub was about to forward may be lost with it.
func (m *Machine) Rehub() {
	hub := m.Hub
	for hub < m.Me && m.Peers[hub].Over() {
		hub++
	}
	if !m.OnDemand || m.Closed || hub == m.Hub {
		return
	}
	if m.Peers[m.Hub].Standing == Lost {
		m.Let = false // what it was about to forward may be lost with it
	}
	m.Hub, m.alone, m.wide = hub, 0, 1
	if hub == m.Me { // most connect by themselves, and are greeted then
		for r := hub + 1; r < len(m.Peers); r++ {
			if !m.Peers[r].Over() && !m.want(r) {
				m.greet(r)
			}
		}
	} else {
		m.Need(hub)
		m.greet(hub)
	}
	m.host.Moved()
}

// greet sends a rank, the new hub or a rank that connects to this hub, the losses and the ranks that have left.
func (m *Machine) greet(to int) {
	for _, r := range m.LostList {
		if r != to {
			m.host.Send(to, Notice{Kind: IsLost, Ranks: []int{r}})
		}
	}
	var left []int
	for r, p := range m.Peers {
		if p != nil && p.Standing == Left {
			left = append(left, r)
		}
	}
	if left != nil {
		m.host.Send(to, Notice{Kind: HaveLeft, Ranks: left})
	}
}

// Spreads reports whether Spread has work.
func (m *Machine) Spreads() bool { return len(m.departed) > 0 }

// Spread sends all ranks the list of those that have left. Once this rank has said goodbye itself, the next hub may
// have too, and wait for the list.
func (m *Machine) Spread() {
	list := m.departed
	m.departed = nil
	for r, p := range m.Peers {
		if p != nil && p.Link != Ended && (!p.Over() || p.Standing == Left && m.Parted) {
			m.host.Send(r, Notice{Kind: HaveLeft, Ranks: list})
		}
	}
}

// Tick counts the time in which ranks have not answered.
func (m *Machine) Tick() {
	if !m.OnDemand || m.Closed {
		return
	}
	for r, p := range m.Peers {
		if p == nil || !p.Waits() || p.Over() {
			continue
		}
		switch p.Waited++; {
		case p.Link == Wanted && p.Waited >= comeTicks:
			m.ask(r, false)
		case p.Link == Asked && p.Waited > m.Reach && m.Reach > 0 && !m.Parted:
			m.host.Suspect(r, NoAnswer)
		}
	}
	m.askMore()
}

// askMore asks 2, 4, 8, … of the ranks that could be the next hub for a link, while this rank has a link to none of
// them. Otherwise the ranks of a failed machine would be found lost one after the other, each after its own limit. So
// the lowest live rank finds out about all ranks below it at the same time, and the others learn it from that rank.
func (m *Machine) askMore() {
	if m.Hub == m.Me {
		return
	}
	for _, p := range m.Peers[m.Hub:m.Me] {
		if p.Linked() && !p.Over() {
			m.alone, m.wide = 0, 1
			return
		}
	}
	if m.alone++; m.alone < comeTicks {
		return
	}
	m.alone = 0
	m.wide *= 2
	n := m.wide
	for r := m.Hub; r < m.Me && n > 0; r++ {
		if p := m.Peers[r]; p.Link != Ended && !p.Over() {
			m.Need(r)
			n--
		}
	}
}

// Part says goodbye on all links; on later ones Joined does.
func (m *Machine) Part() {
	m.Parted = true
	for r, p := range m.Peers {
		if p != nil && p.Linked() && p.Standing != Lost {
			m.host.Send(r, Notice{Kind: Goodbye})
		}
	}
}

// MayEnd reports whether this rank may end its links after its goodbye. The hub may when all others have acknowledged it,
// because they send nothing more to forward then, and another rank when the hub has: it tells the others, at once or
// when it becomes the hub.
func (m *Machine) MayEnd() bool {
	if m.Hub == m.Me {
		return !m.OnDemand || m.Let || m.all(func(p *Peer) bool { return p.Acked })
	}
	return !m.OnDemand || m.Let || m.Peers[m.Hub].Acked
}

// MayPart reports whether this rank may say goodbye: the hub lets the others leave first.
func (m *Machine) MayPart() bool {
	return !m.OnDemand || m.Hub != m.Me || m.all(func(*Peer) bool { return false })
}

// all reports whether something holds for all ranks that have neither ended nor left.
func (m *Machine) all(holds func(*Peer) bool) bool {
	for _, p := range m.Peers {
		if p != nil && p.Link != Ended && p.Standing != Left && !holds(p) {
			return false
		}
	}
	return true
}

// End is called when this rank ends all its links.
func (m *Machine) End() {
	m.Closed = true
	for _, p := range m.Peers {
		if p != nil {
			p.Link = Ended
		}
	}
}
