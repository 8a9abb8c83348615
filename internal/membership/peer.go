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
	Waited   int  // ticks in which a link was to come and the peer did not answer
	asHub    bool // it was the hub when it said goodbye: it tells all others itself
	deaf     bool // this rank has said goodbye, and no process listens at the peer's address
	failed   int  // links in a row that ended before they were confirmed
}

// Linked reports whether there is a link.
func (p *Peer) Linked() bool { return p.Link == Fresh || p.Link == Up }

// Waits reports whether a link is to come.
func (p *Peer) Waits() bool { return p.Link == Wanted || p.Link == Asked }

// Over reports whether the peer has left or is lost.
func (p *Peer) Over() bool { return p.Standing >= Left }

// Finder says which rank has found that a peer is lost.
type Finder uint8

// The finders.
const (
	ThisRank Finder = iota
	AnotherRank
)

// Lose makes the peer lost. It returns false if the peer was lost before, or has left and is lost for this rank alone.
func (p *Peer) Lose(by Finder) bool {
	if p.Standing == Lost || p.Standing == Left && by == ThisRank {
		return false
	}
	p.Standing = Lost
	return true
}

// Leave notes that the peer has left in good order, and returns false if it had left before or is lost.
func (p *Peer) Leave() bool {
	if p.Over() {
		return false
	}
	p.Standing = Left
	return true
}
