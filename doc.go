// Package cohort runs a Go program as a group of ranks that exchange messages. The same program
// runs on a laptop without other software, on all cores of a workstation, and on a cluster, over
// TCP or under MPI.
//
// # Ranks and backends
//
// A job consists of ranks, numbered from 0. Each rank runs the same program on its own data and
// exchanges messages with the others. A communicator ([Comm]) is a group of ranks; [Init] returns
// the first one, the world, which contains all of them. The names are those of the MPI standard, so
// its literature applies.
//
// A backend carries the messages:
//
//   - local: the ranks are goroutines of one process ([Run]), or the job is a single process
//   - shm: the ranks are processes on one node and use shared memory
//   - tcp: the ranks are processes on any nodes; on Linux those of one node share memory, and
//     others use sockets
//   - mpi: an MPI library, loaded at run time, carries the messages
//
// A node is one machine, also called a host where ssh or the network is meant.
//
// A program makes the same calls, with the same arguments, on every backend. docs/mpi.md lists what
// is different on mpi. In particular, the launcher ends the job when a rank dies, mismatched
// collectives are found with [Main] but not always with Init, and the order of reductions is fixed
// only with Config.Deterministic.
//
// # Launching a job
//
// The command cohort run starts a program as several ranks:
//
//	cohort run -n 4 ./program                   on this machine
//	cohort run -n 4 --hosts a,b ./program       on other hosts, over ssh
//	cohort run -n 4 --backend mpi ./program     over an MPI library
//
// Under mpiexec or srun the program joins the launcher's job. Started alone, it is a world of one
// rank. [Config] and environment variables, which docs/environment.md lists, override what Init
// detects. [Run] starts ranks inside the calling process, which is convenient in tests.
//
// # A first program
//
// Each rank adds up its share of a series. Allreduce adds the shares, and every rank receives the
// total:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"github.com/cohort-hpc/cohort"
//	)
//
//	func main() { cohort.Main(series) }
//
//	func series(_ context.Context, world *cohort.Comm) error {
//		const n = 1000000
//		sum := 0.0
//		for i := 1 + world.Rank(); i <= n; i += world.Size() {
//			sum += 1 / (float64(i) * float64(i))
//		}
//		total, err := cohort.AllreduceOne(world, sum, cohort.Sum)
//		if err == nil && world.Rank() == 0 {
//			fmt.Println(total) // about π²/6
//		}
//		return err
//	}
//
// # Operations
//
// [Send] and [Recv] move a message between two ranks. Collectives such as [Bcast], [Allreduce] and
// [Alltoall] are called by all ranks of a communicator, in the same order. Most operations come in
// three forms:
//
//   - blocking: Allreduce returns when the result is available
//   - nonblocking: [Iallreduce] returns a [Request] to wait for
//   - persistent: [AllreduceInit] returns a [Persistent], which can be started many times
//
// The description of a blocking form applies to the other two. A nonblocking form returns without
// waiting. [Request.Wait] waits for the result and returns the errors of the blocking form. The
// call that starts the operation returns some errors itself: [ErrComm], [ErrClosed] and [ErrBusy]
// of a collective, and errors in the arguments of a send or receive. On mpi it may return others
// too. AllreduceInit and the other …Init functions of collectives wait until all ranks have called
// them, and return the errors of the blocking form. All ranks must then start the operation the
// same number of times. Each Start uses the current contents of the buffers, and [Persistent.Wait]
// waits for the result.
//
// If the ranks' calls of a collective differ in the operation, the root, the element type or a
// length, every rank gets [ErrMismatch] (on mpi with [Main] or Config.Check; docs/mpi.md has all
// conditions). A rank whose call had already returned gets the error from a later call or from
// Close. docs/errors.md says in which collectives a rank returns early.
//
// A collective that ends at its deadline returns [ErrTimeout], and the communicator is broken. On
// local, shm and tcp the error names the ranks that had not arrived.
//
// The comment of an operation says whether it is collective: whether all ranks of the communicator
// call it. A function whose comment says nothing about it, such as [Comm.Rank], is not collective.
//
// Operations that only move data accept elements of any type of fixed size without pointers:
// numbers, bool, and arrays and structs of them. Reductions accept numbers and [Loc] pairs. An
// operation made by [NewOp] accepts the type that it was made for. All ranks must have the same
// byte order and memory layout.
//
// On local, shm and tcp the order in which a reduction combines values depends only on the number
// of ranks, the length, and whether the operation commutes. In programs built for one architecture
// and one value of GOAMD64, the result has the same bits on these three backends and in every run
// (docs/algorithms.md). On mpi, Config.Deterministic selects the same order.
//
// # Errors and deadlines
//
// Every failure is an error: an [OpError] with the operation, the rank and the peer. It wraps a
// sentinel such as [ErrTruncate], which errors.Is finds. docs/errors.md lists all sentinels.
// Arguments are checked before anything is sent.
//
// A failure inside a collective breaks its communicator: later operations return [ErrBroken], and
// Close still frees everything. On local, shm and tcp, when a rank dies, the operations of the
// others end with [ErrPeerLost], and [Comm.Shrink] returns a communicator of the survivors. On mpi
// the launcher ends the job.
//
// Operations take no context. Instead, [Comm.WithContext] returns a handle of the same communicator
// whose operations end when the context does, with [ErrTimeout] or [ErrCanceled]. The context given
// to Init or Run applies to the world and every communicator derived from it. Config.Timeout limits
// each operation.
//
// # Buffers and aliasing
//
// Buffers are slices. A buffer belongs to an operation until the operation is complete. Until then
// the program must not write to a send buffer, and must not read or write a receive buffer. A
// blocking operation is complete when it returns, a nonblocking one when Wait or Test reports it.
//
// To work in place, pass the same slice as send and recv, to collectives and to [Sendrecv] alike.
// Any other overlap is [ErrBuffer]. A buffer that a rank does not use, such as recv of [Reduce] on
// a rank other than the root, may be nil. Receives never write past the end of a slice.
//
// [SendView], [RecvView] and [AlltoallView] send and receive elements that are not contiguous in
// memory, such as a column of a matrix. A [Layout] describes them.
//
// # Concurrency
//
// A Comm may be used by many goroutines at once. Point-to-point operations may run concurrently
// without limit. Collectives on one communicator run one at a time: a second concurrent one is
// [ErrBusy]. Goroutines that call collectives concurrently need one communicator each ([Comm.Dup]).
//
// # Where to go on
//
// Every operation has an example, most on four ranks. The folder examples has complete programs,
// and docs/README.md lists the guides. Packages values (any Go value), file (one file for all
// ranks), tasks (a stream of tasks), exact (sums with the same bits on any number of ranks), hybrid
// (threads inside a rank) and tensor (multi-dimensional data, GPUs) build on this one. Package topo
// describes the machine, and cohorttest tests a backend.
package cohort
