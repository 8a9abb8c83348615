// Package membership decides for the ranks of a job which links are made, who has left in good order, and who is lost.
//
// A Machine is one rank's view. It is pure: events are method calls, what follows from them are calls of its Host,
// and it has no clock, socket or lock. So tests can run three machines through every order of events,
// and five through random ones.
//
// # The link to a peer
//
//	state   what it means                            becomes
//	None    neither rank needs a link                Wanted: Need; Fresh: the peer has made one
//	Wanted  this rank expects the peer to make one   Asked: after some ticks, or by Need; Fresh
//	Asked   attempts to make one go on               Fresh
//	Fresh   there is one, not confirmed by the peer  Up: its first frame has come; Asked: it has ended
//	Up      both ranks have confirmed it             Ended: it has ended
//	Ended   the link has ended, and no other follows –
//
// Every state becomes Ended when this rank ends (End) or gives the link up (Cut). So does every state without a link
// when another rank reports that the peer has left (Told).
//
// # The standing of a peer
//
//	state     what it means                                  becomes
//	Member    it takes part                                  each of the others
//	Reported  another rank says that it has left; its        Left: its goodbye, or the end of its link; Lost
//	          goodbye may still come over its link
//	Left      it has left in good order                      Lost: another rank reports that it is lost
//	Lost      it is lost                                     –
//
// Lost is final. A rank never declares a rank lost that has left. But a rank that dies between two goodbyes has left for
// some and is lost for others, and a loss ends communicators: so the notice of a loss counts more than a goodbye, and in
// the end the rank is lost for all.
//
// Peer.Leave and Peer.Lose have these rules. The ranks of backend/local have no links and no Machine, and use the rules
// alone.
//
// # The stage of this rank
//
//	state     what it means                                becomes
//	present   it takes part                                parting: Part; excluded: End
//	parting   it has said goodbye, and still has links     gone: End
//	gone      it has ended its links                       –
//	excluded  it has ended its links without a goodbye     –
//
// A rank that the others have declared lost says no goodbye.
//
// # The hub
//
// With links on demand, the lowest rank that is neither lost nor has left is the hub. All ranks keep a link with it.
// Notices between two ranks without a link go through the hub. They say that a rank is lost or has left, or that it has
// closed or broken a communicator.
//
// # Leaving
//
// A rank that leaves says goodbye on every link, including links that come later. Every rank acknowledges it. The
// acknowledgement of the hub is a promise: the hub tells all others before it ends itself. A rank ends when it has a
// promise. A rank that becomes the hub promises it to those whose goodbye it has acknowledged before, and a rank whose
// link with its hub ends before it has a promise asks the hub again. If the hub that has promised is lost, the next hub
// must promise.
//
// The hub itself ends when all others have acknowledged its goodbye. From its own goodbye on it promises nothing: others
// may take it for left, and refuse its links. Its goodbye says that it was the hub. Others do not pass that on, because
// the hub has yet to tell them of other ranks.
//
// A rank that has said goodbye declares no other rank lost for not answering; where no process listens any more, it waits
// for nothing from that rank.
//
// A link that comes too late is not simply closed. Its only frame tells the peer that this rank has left, that the
// peer's own goodbye is acknowledged, or that the peer is lost.
//
// The hub may die after it has acknowledged a goodbye and before the others have its notice. Then a rank without a link
// to the rank that has left may declare that rank lost as well.
package membership
