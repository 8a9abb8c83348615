// Package cohort runs a program as many ranks that act as one: on a laptop with
// nothing installed, on a workstation's cores, and unchanged on a cluster.
//
//	world, err := cohort.Init(ctx, nil)      // join the job this process was started in
//	defer world.Close()
//	err = cohort.Allreduce(world, send, recv, cohort.Sum)
//
//	err = cohort.Run(ctx, 4, func(world *cohort.Comm) error { … })  // 4 ranks in this process
//
// The words are MPI's: ranks of a communicator ([Comm]) send each other messages
// ([Send], [Recv]) and make collective operations together ([Bcast],
// [Allreduce], …). Each operation comes blocking, nonblocking (Isend, Iallreduce;
// they return a [Request]) and persistent (SendInit, AllreduceInit; a
// [Persistent] to be started again and again).
//
// # Elements
//
// Buffers are slices. Operations that only move data take any element type of
// fixed size without pointers: numbers, bool, arrays and structs of them.
// Reductions take numbers, [Loc] pairs, and what a [NewOp] is made for. All
// ranks must run on machines with the same byte order and layout.
//
// # Aliasing
//
// A buffer given to an operation belongs to it until the operation is complete:
// a send buffer must not be written, a receive buffer must not be touched. The
// same slice as send and recv of a collective works in place; slices that overlap
// otherwise are ErrBuffer. Receives never write past the slice they were given.
//
// # Errors
//
// Every failure is an error that wraps one of the sentinels below, in an
// [OpError] that says which operation of which rank failed. Arguments are checked
// before anything is sent. Ranks whose calls of a collective differ all get
// [ErrMismatch]; a rank that dies makes the operations of the others end with
// [ErrPeerLost]. After a failure inside a collective its communicator gives
// [ErrBroken], and Close still frees everything.
//
// # Deadlines
//
// There is no context per operation: [Comm.WithContext] returns a handle of the
// same communicator whose operations end with the context. The context given to
// [Init] or [Run] governs the world and all that is made from it.
package cohort
