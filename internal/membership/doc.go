// Package membership decides which ranks of a job are there: whose link is to be made, who has left in good order,
// and who is lost.
//
// A Machine is one rank's view. It is pure: events are method calls, what follows from them are calls of its Host,
// and it has no clock, socket or lock. So a test runs three of them through every order of events.
//
// # The link to a peer
//
//	state   what it means                            becomes
//	None    neither rank needs one                   Wanted: Need; Fresh: the peer has made one
//	Wanted  the peer is to make one by itself        Asked: after some ticks, or by Need; Fresh
//	Asked   attempts to make one go on               Fresh
//	Fresh   there is one, not confirmed by the peer  Up: the first frame; Asked: it has ended, having carried nothing
//	Up      both ranks have confirmed it             Ended
//	Ended   nothing more comes, and no link will
//
// # The standing of a peer
//
//	state     what it means                                  becomes
//	Member    it takes part                                  each of the others
//	Reported  the hub reports that it has left; its goodbye  Left: by its goodbye, or the end of its link; Lost
//	          may still be in its link
//	Left      it has left in good order                      –
//	Lost      it is lost                                     –
//
// Left and Lost are final, and the first to be decided stays. So a goodbye never hides a loss, and a loss never a
// goodbye.
//
// # The hub
//
// With links on demand, the lowest rank that is neither lost nor has left is the hub, and all ranks have a link with
// it. Notices between two ranks without a link go through it: that a rank is lost or has left, that it has closed or
// broken a communicator.
//
// # Leaving
//
// A rank that leaves says goodbye on every link, also on those that come later, and ends when the hub has
// acknowledged that: the hub has told all others before it ends itself. If the hub is lost, the next one must
// acknowledge. The hub itself ends when all others have acknowledged its goodbye. From its goodbye on, a rank takes
// nobody for lost who does not answer, and who has acknowledged the goodbye owes it nothing more.
//
// A link that comes too late is not simply closed: the peer learns with its only frame that this rank has left, that
// its own goodbye is acknowledged, or that it is lost.
//
// The hub may die after it has acknowledged a goodbye and before the others have its notice. Then a rank without a
// link to the one that has left takes that for lost as well.
package membership
