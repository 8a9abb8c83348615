// Package meet implements how the ranks of the tcp backend find and authenticate each other, and so
// everything that an unauthenticated peer can reach: the secret of a job, the handshake, the listener in
// front of it, and the rendezvous of the ranks.
//
// A connection passes through three stages. Each stage reads only what the one before has admitted.
//
//  1. Unauthenticated peers. A [Listener] accepts. [Server] reads at most 64 bytes, in two pieces of
//     fixed size, before the peer has proved that it has the secret of the job ([Identity]).
//     [Client] is the other end. TLS, if it is used, starts after that, so an unauthenticated peer
//     does not reach it either.
//  2. Rendezvous. Ranks that have proved their identity join at the coordinator ([Join], [Serve]). All of
//     them get the table of the ranks, or all get the same error. In the same way either all ranks
//     connect to each other or all get an error ([Meeting.Confirm]). Messages of the rendezvous are JSON,
//     in frames.
//  3. Frames (package frame), which the backend interprets.
//
// Every length is compared with a limit before memory is allocated for it. Nothing is logged:
// refusals are counted, and the first of each kind is kept ([Listener.Report]).
package meet
