// Package match decides which message a receive gets, by MPI's rules: the queue
// of posted receives and the queue of messages that arrived before their
// receive, shared by the backends that match messages themselves.
//
// Of the messages from one rank that match a receive, the receive gets the one
// sent first, and a message goes to the first posted receive that matches it
// (MPI-4.1 section 3.5). Queues keep the order of Push, so both hold if messages
// are pushed in the order sent and receives in the order posted.
package match
