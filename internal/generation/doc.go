// Package generation decides which processes are the ranks of each world of a job that goes on after losses, and
// tells them.
//
// A job has a sequence of worlds, its generations. A [Machine], at the launcher, gives out the places in them. A [Client],
// in a process, asks for one: a new process in Init, and a member of the present world in Rejoin. When every process that
// belongs to the next world has asked, the machine forms it, and each gets a [Place]: the world's number, its own rank, the
// size, and a name by which the ranks find each other as those of every other job do.
//
// A Machine starts no process, reads no clock, and has no socket or lock. Its owner calls a method for each event, and
// carries out what the machine asks for through its [Host]. The process's side is such a machine too, the entry, whose
// owner is the Client.
//
// # The states of a process
//
//	state     event                                                       next
//	starting  it asks for a place                                         asking
//	asking    the next world is formed with it                            joining
//	          the next world is formed without it: a job that shrinks     out
//	          it withdraws, at its deadline                               starting or member, as before
//	joining   it is connected with the others                             joined
//	joined    all others of its world are too                             member
//	joining,  one of them has ended or cannot be: nobody has joined       starting
//	joined
//	member    it asks for a place in the next world                       asking
//	any       the others count it as lost, or it does not answer          out
//	out       –                                                           it is told so, or killed
//
// A process that ends before it is out is started again, as a new process under the same rank, while restarts are left.
//
// # Who goes on
//
// A process that asks says which ranks it counts as lost. The next world is formed when every living member either has
// asked or is counted as lost by one that has. If members that have asked count each other as lost, because the network
// between them was cut, the one that is apart from most others is taken out, until nobody is apart. So no two processes
// ever have the same rank in the same generation, and nothing goes on without the launcher's word.
//
// A world is used by all its ranks or by none: each tells the launcher when it is connected, and goes on when all are.
package generation
