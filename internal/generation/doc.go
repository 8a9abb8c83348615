// Package generation decides which processes are the ranks of each world of a job that goes on after losses, and
// tells them.
//
// A job has a sequence of worlds, its generations. A [Machine], at the launcher, gives out the places in them. A [Client],
// in a process, asks for one: a new process in Init, and a member of the present world in Rejoin. When every process that
// belongs to the next world has asked, the machine forms it, and each gets a [Place]: the world's number, its own rank, the
// size, and a name by which the ranks find each other as those of every other job do.
//
// A Machine starts no process, reads no clock, and has no socket or lock. Its owner calls a method for each event, and
// carries out what the machine asks for through its [Host].
//
// # The states of a process
//
//	state     event                                                          next
//	starting  it asks for a place                                            asking
//	asking    the next world is formed with it                               member
//	          the next world is formed without it: a job that shrinks        out
//	          it withdraws, at its deadline                                  starting or member, as before
//	member    it asks for a place in the next world                          asking
//	          all others have asked, and one of them counts it as lost       out
//	out       –                                                              it is told so, and ends
//
// A process that ends before it is out is started again, as a new process under the same rank, while restarts are left.
//
// # Who goes on
//
// A process that asks says which ranks it counts as lost. The next world is formed when every living member either has
// asked or is counted as lost by one that has. If members that have asked count each other as lost, because the network
// between them was cut, the largest set in which nobody counts another as lost goes on; of several, that with the lowest rank. The
// others are out. So no two processes ever have the same rank in the same generation, and nothing goes on without the
// launcher's word.
package generation
