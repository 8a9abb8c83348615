// Package wire is what crosses the network on the tcp backend, and the part of it that a stranger
// can reach: the secret of a job, the handshake, the listener that stands in front of it, the
// meeting of the ranks, and the frames that messages are made of.
//
// A connection goes through three stages, and each reads only what the one before has let in.
//
//  1. Strangers. A [Listener] accepts, and [Server] reads at most 64 bytes, in two pieces of fixed
//     size, before it knows that the peer has the secret of the job ([Identity]). [Client] is the
//     other end. TLS, where it is asked for, starts behind that, so that a stranger does not reach
//     it either.
//  2. Ranks that have proved it meet at the coordinator: [Join] and [Coordinate]. All of them get
//     the table of the ranks, or all get the same error. So it is with their connections to each other:
//     [Conn.Confirm] and [Oversee].
//  3. Frames: a [Header] of 40 bytes, checked in every bit, and as many bytes of payload as it
//     says, within a limit ([Encoder], [Decoder]). What they mean is the backend's affair.
//
// Every length is compared with a limit before memory is taken for it. Nothing is logged: what was
// refused is counted, and the first of each kind kept ([Listener.Refused]).
package wire
