package membership

// Why is the reason why a rank is declared lost.
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
	HaveLeft             // Ranks have left; if the receiver is one of them, this acknowledges its goodbye
	IsLost               // Ranks[0] is lost
)

// Notice is what ranks tell each other.
type Notice struct {
	Kind  Kind
	Ranks []int
	Hub   bool // the sender is the hub: of HaveLeft, and will tell the others; of Goodbye, and tells nothing more
}

// Host carries out what a machine decides. Its methods may call Need, and no other method of the machine.
type Host interface {
	// Ask begins attempts to make a link, at once or after a pause, unless attempts go on already. The host calls
	// Attempted after each.
	Ask(rank int, pause bool)
	// Begin queues what a new link begins with, before everything that waits for the link.
	Begin(rank int)
	// First writes the first frame on a new link.
	First(rank int)
	// Send sends a notice, behind what waits for the link. A goodbye does not wait for a link to be confirmed.
	Send(rank int, n Notice)
	// Suspect declares a rank lost: the host calls Lose, unless it finds a goodbye of the rank before.
	Suspect(rank int, why Why)
	// HasLeft is called when a rank has left. If there is no link, the host drops what waits for one.
	HasLeft(rank int)
	// Moved is called when there is another hub: notices that went through the old one may be lost with it.
	Moved()
}

// Limits of the attempts to make a link.
const (
	attemptsMost = 20 // links with a rank that end before they are confirmed, in a row
	refusalCosts = 7  // a refusal counts as so many of them; it is not final, because a damaged byte can look like one
	comeTicks    = 3  // ticks in which others may connect by themselves before they are asked
)

// stage is how far this rank has come in leaving its job: see the package documentation.
type stage uint8

const (
	present stage = iota
	parting
	gone
	excluded
)

// Machine is one rank's view of the membership of its job.
type Machine struct {
	Me       int
	Peers    []*Peer // by rank; nil for this one
	OnDemand bool    // links are made when they are needed
	Reach    int     // ticks in which a rank that is asked for a link must answer; 0: no limit

	Hub      int   // see the package documentation
	LostList []int // the lost ranks, in the order in which they were lost

	stage    stage // of this rank
	asHub    bool  // this rank was the hub when it said goodbye
	promise  int   // the hub that has acknowledged that, and tells the others; -1: none
	departed []int // ranks that have left, of which this hub has not yet told the others
	alone    int   // ticks without a link to any rank that could be the hub
	wide     int   // how many of these ranks are asked
	host     Host
}

// New returns the machine of a rank.
func New(me int, peers []*Peer, onDemand bool, reach int, host Host) *Machine {
	return &Machine{Me: me, Peers: peers, OnDemand: onDemand, Reach: reach, promise: -1, wide: 1, host: host}
}

// Parted reports whether this rank has said goodbye.
func (m *Machine) Parted() bool { return m.stage == parting || m.stage == gone }

// Closed reports whether this rank has ended its links.
func (m *Machine) Closed() bool { return m.stage == gone || m.stage == excluded }

// Connected notes a link that was made at the start.
func (m *Machine) Connected(r int) { m.Peers[r].Link = Up }

// Need is called when a link is needed: it begins attempts to make one, if there is none.
func (m *Machine) Need(r int) {
	if m.want(r) {
		m.ask(r, false)
	}
}

// Requested is called when a lower rank asks for a link. If that rank has said goodbye, it waits for the
// acknowledgement, which Came gives it.
func (m *Machine) Requested(r int) {
	if p := m.Peers[r]; p.Standing == Left && !m.Closed() {
		m.host.Ask(r, false)
	} else {
		m.Need(r)
	}
}

// want notes that a link is needed, and reports whether one is to come.
func (m *Machine) want(r int) bool {
	p := m.Peers[r]
	if p.Link == None && m.OnDemand && !m.Closed() && !p.Over() {
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

// Came judges a new link with a peer, which either of the two has made. If it returns true, the host takes the link and
// calls Joined. Otherwise the host writes the notice on it, if there is one, and ends it. The notice tells the peer why
// this rank has no use for the link.
func (m *Machine) Came(r int) (take bool, word *Notice) {
	p := m.Peers[r]
	switch {
	case p.Standing == Lost:
		return false, &Notice{Kind: IsLost, Ranks: []int{r}}
	case p.Standing == Left: // it waits for an acknowledgement
		word = &Notice{Kind: HaveLeft, Ranks: []int{r}, Hub: m.vouches(r)}
		if m.Parted() {
			word.Ranks = append(word.Ranks, m.Me)
		}
		return false, word
	case m.stage == gone:
		return false, &Notice{Kind: Goodbye, Hub: m.asHub}
	case m.Closed() || p.Linked() || p.Link == Ended:
		return false, nil
	case p.Link == None: // the other end has asked for it
		m.host.Begin(r)
	}
	p.Link, p.Waited = Fresh, 0
	return true, nil
}

// Joined is called when the host has taken a link. A rank that has said goodbye repeats it on every new link. Without a
// goodbye the peer would take the end of the link for a loss.
func (m *Machine) Joined(r int) {
	m.host.First(r)
	if m.Parted() {
		m.host.Send(r, Notice{Kind: Goodbye, Hub: m.asHub})
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

// LinkEnded is called when the link with a peer has ended, and everything that came over it was read. A link that was
// not confirmed has carried nothing, and is made again. If another rank has reported that the peer left, it has left,
// even if its goodbye was lost with the link.
func (m *Machine) LinkEnded(r int) {
	switch p := m.Peers[r]; {
	case !p.Linked():
	case p.Standing == Reported:
		m.noteLeftUnheard(r)
	case p.Link == Up || p.Over():
		p.Link = Ended
		switch {
		case p.Over():
		case !p.Acked:
			m.host.Suspect(r, NoGoodbye)
		case m.Parted() && m.promise < 0: // it was no hub yet when it acknowledged this rank's goodbye
			if p.Link = None; r == m.Hub {
				p.Link, p.Waited = Wanted, 0
				m.ask(r, true)
			}
		}
	default:
		p.Link = Wanted
		if p.failed++; p.failed > attemptsMost && !m.Parted() {
			m.host.Suspect(r, Unconfirmed)
		} else {
			m.ask(r, true)
		}
	}
}

// Cut is called when this rank gives a link up for good.
func (m *Machine) Cut(r int) { m.Peers[r].Link = Ended }

// Attempted is called after each attempt to make a link, or to ask for one. It reports whether that was the last one.
// refused means that the peer does not accept this rank as one of its job, deaf that no process listens at its address.
func (m *Machine) Attempted(r int, refused, deaf bool) (over bool) {
	p := m.Peers[r]
	if m.Closed() || !p.Waits() || p.Over() {
		return true
	}
	if refused {
		p.failed += refusalCosts
	}
	if !m.Parted() && (refused && p.failed > attemptsMost || deaf && m.judges(r)) {
		p.Link = Wanted
		m.host.Suspect(r, Unreachable)
		return true
	}
	if deaf && m.Parted() { // it has ended too, and acknowledges nothing; others find out how
		p.deaf, p.Link = true, Ended
		m.Rehub()
		return true
	}
	return false
}

// judges reports whether this rank may declare rank r lost because no process listens at its address any more. It may
// if one of the two is the hub, and the links with all earlier hubs have ended. Then no notice that r has left can
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

// Answered notes that a peer is alive, as the host knows in another way than over a link.
func (m *Machine) Answered(r int) { m.Peers[r].Waited = 0 }

// Said handles a goodbye of rank r, and acknowledges it. hub says that r was the hub then. From now on this rank forwards
// nothing through r.
func (m *Machine) Said(r int, hub bool) {
	p := m.Peers[r]
	if p.Standing == Lost {
		return
	}
	ack := Notice{Kind: HaveLeft, Ranks: []int{r}, Hub: m.vouches(r)}
	p.asHub = p.asHub || hub
	m.noteLeft(r)
	if m.OnDemand {
		m.host.Send(r, ack)
	}
}

// noteLeft notes that a rank has left.
func (m *Machine) noteLeft(r int) {
	if !m.Peers[r].Leave() {
		return
	}
	m.host.HasLeft(r)
	if m.OnDemand && m.vouches(r) {
		m.departed = append(m.departed, r)
	}
	m.Rehub()
}

// noteLeftUnheard notes that a rank has left without its goodbye having arrived here.
func (m *Machine) noteLeftUnheard(r int) {
	m.Peers[r].Link = Ended
	m.noteLeft(r)
}

// Told handles a rank's notice that other ranks have left. If there is a link with one of them, its goodbye arrives
// over that link, behind its last messages.
func (m *Machine) Told(from int, n Notice) {
	for _, r := range n.Ranks {
		if r == m.Me {
			if m.Peers[from].Acked = true; n.Hub && m.Peers[from].Standing != Lost {
				m.promise = max(m.promise, from) // that of a former hub may be read later
			}
			continue
		}
		if p := m.Peers[r]; p.Standing == Member {
			p.asHub = p.asHub || r == from // it may have been: nobody needs this rank to pass on what it says of itself
			if p.Standing = Reported; !p.Linked() {
				m.noteLeftUnheard(r)
			}
		}
	}
}

// Lose does what Peer.Lose does, until this rank has ended its links. The host calls Rehub afterwards.
func (m *Machine) Lose(r int, by Finder) bool {
	if m.Closed() || !m.Peers[r].Lose(by) {
		return false
	}
	m.LostList = append(m.LostList, r)
	return true
}

// Rehub determines the hub again after a rank was lost or has left. All ranks connect to a new hub and repeat their
// notices, because those that the old hub was about to forward may be lost with it.
func (m *Machine) Rehub() {
	hub := m.Hub
	for hub < m.Me && (m.Peers[hub].Over() || m.Peers[hub].deaf) {
		hub++
	}
	if !m.OnDemand || m.Closed() {
		return
	}
	if m.promise >= 0 && m.Peers[m.promise].Standing == Lost {
		m.promise = -1 // what it was about to forward may be lost with it
		if p := m.Peers[hub]; p != nil && p.Link == Ended && p.Acked && !p.Over() {
			p.Link = None // this rank needed nothing more from it
			m.Need(hub)
		}
	}
	if hub == m.Hub {
		return
	}
	m.Hub, m.alone, m.wide = hub, 0, 1
	if hub == m.Me { // most connect by themselves, and are greeted then
		for r := hub + 1; r < len(m.Peers); r++ {
			if p := m.Peers[r]; !p.Over() && !m.want(r) {
				m.greet(r)
			} else if p.Standing == Left && p.Linked() && !m.Parted() {
				m.host.Send(r, Notice{Kind: HaveLeft, Ranks: []int{r}, Hub: true})
			}
		}
	} else {
		m.Need(hub)
		m.greet(hub)
	}
	m.host.Moved()
}

// greet tells a rank which ranks are lost and which have left. It is the new hub, or a rank that connects to this hub.
func (m *Machine) greet(to int) {
	for _, r := range m.LostList {
		if r != to {
			m.host.Send(to, Notice{Kind: IsLost, Ranks: []int{r}})
		}
	}
	var left []int
	for r, p := range m.Peers {
		if p != nil && p.Standing == Left && !p.asHub {
			left = append(left, r)
		}
	}
	if left != nil {
		m.host.Send(to, Notice{Kind: HaveLeft, Ranks: left})
	}
}

// Spreads reports whether Spread has work.
func (m *Machine) Spreads() bool { return len(m.departed) > 0 }

// Spread sends the others the list of ranks that have left. After this rank's own goodbye it sends the list to ranks
// that have left, too: the next hub may be one of them, and wait for it.
func (m *Machine) Spread() {
	list := m.departed
	m.departed = nil
	for r, p := range m.Peers {
		if p != nil && p.Link != Ended && (!p.Over() || p.Standing == Left && m.Parted()) {
			m.host.Send(r, Notice{Kind: HaveLeft, Ranks: list})
		}
	}
}

// Tick counts the time in which ranks have not answered.
func (m *Machine) Tick() {
	if !m.OnDemand || m.Closed() {
		return
	}
	for r, p := range m.Peers {
		if p == nil || !p.Waits() || p.Over() {
			continue
		}
		switch p.Waited++; {
		case p.Link == Wanted && p.Waited >= comeTicks:
			m.ask(r, false)
		case p.Link == Asked && p.Waited > m.Reach && m.Reach > 0 && !m.Parted():
			m.host.Suspect(r, NoAnswer)
		}
	}
	m.askMore()
}

// askMore asks ranks that could be the next hub for a link, while this rank has a link to none of them: 2 of them, then
// 4, 8, and so on. Otherwise the ranks of a failed machine would be found lost one after the other, each after its own
// limit. So the lowest live rank finds out about all ranks below it at the same time, and the others learn it from that
// rank.
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

// Part says goodbye on all links. Joined says it on later ones.
func (m *Machine) Part() {
	m.stage, m.asHub = parting, m.Hub == m.Me
	for r, p := range m.Peers {
		if p != nil && p.Linked() && p.Standing != Lost {
			m.host.Send(r, Notice{Kind: Goodbye, Hub: m.asHub})
		}
	}
}

// MayEnd reports whether this rank may end its links after its goodbye: with the promise of a hub, or as the hub when all
// others have acknowledged the goodbye. From then on they send nothing more to forward.
func (m *Machine) MayEnd() bool {
	return !m.OnDemand || m.promise >= 0 || m.Hub == m.Me && m.all(func(p *Peer) bool { return p.Acked })
}

// MayPart reports whether this rank may say goodbye: the hub lets the others leave first.
func (m *Machine) MayPart() bool {
	return !m.OnDemand || m.Hub != m.Me || m.all(func(*Peer) bool { return false })
}

// all reports whether something holds for all ranks whose link has not ended and that have not left.
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
	switch m.stage {
	case present:
		m.stage = excluded
	case parting:
		m.stage = gone
	}
	for _, p := range m.Peers {
		if p != nil {
			p.Link = Ended
		}
	}
}

// vouches reports whether this rank tells the others of a goodbye that it acknowledges: others may not take
// notices of a hub that has said goodbye itself.
func (m *Machine) vouches(r int) bool { return m.Hub == m.Me && !m.Parted() && r > m.Me }
