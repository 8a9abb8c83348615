package cohort

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// Graph is a communicator whose ranks are connected by the edges of a directed graph, for the collectives of a
// [Neighborhood]. Pass its Comm to other operations. A nil *Graph is like a nil [Cart].
type Graph struct {
	*Comm
	sources, destinations []int
}

// GraphCreate makes a communicator of the same ranks, connected by the edges of a directed graph
// (MPI_Dist_graph_create_adjacent). An edge leads from each rank in sources to the calling rank, and from the
// calling rank to each rank in destinations. A rank may be in a list several times, and may be the calling
// rank. The ranks keep their numbers: reorder is not used.
//
// Collective: all ranks of c call it. Each edge is given twice: by its source as a destination, and by its
// destination as a source.
//
// Errors: [ErrRank] for a rank outside c; [ErrMismatch] on every rank if the two ranks of an edge do not give
// it equally often.
//
// Deadline: [ErrTimeout], and c is broken.
func (c *Comm) GraphCreate(sources, destinations []int, reorder bool) (*Graph, error) {
	g := &Graph{sources: slices.Clone(sources), destinations: slices.Clone(destinations)}
	bad := c.checkRanks("sources", sources)
	if bad == nil {
		bad = c.checkRanks("destinations", destinations)
	}
	d, err := c.base().GraphCreate(g.sources, g.destinations, bad)
	if err != nil {
		return nil, err
	}
	g.Comm = (*Comm)(d)
	return g, nil
}

func (c *Comm) checkRanks(name string, ranks []int) error {
	for i, r := range ranks {
		if r < 0 || r >= c.Size() {
			return fault(ErrRank, fmt.Sprintf("%s[%d] is rank %d of %d; want 0 to %d", name, i, r, c.Size(), c.Size()-1))
		}
	}
	return nil
}

func (g *Graph) neighborhood() *Comm {
	if g == nil {
		return nil
	}
	return g.Comm
}

// Sources returns the ranks from which there is an edge to the calling rank.
func (g *Graph) Sources() []int {
	if g == nil {
		return nil
	}
	return slices.Clone(g.sources)
}

// Destinations returns the ranks to which there is an edge from the calling rank.
func (g *Graph) Destinations() []int {
	if g == nil {
		return nil
	}
	return slices.Clone(g.destinations)
}

// Neighborhood is a communicator whose ranks have neighbors: a *[Cart] or a *[Graph].
//
// In its collectives a rank exchanges a block of elements with each of its neighbors (MPI-4.1 section 8.6).
// A rank receives from its sources and sends to its destinations:
//
//   - In a grid these are the same ranks: in each dimension the lower neighbor and then the upper one, so two
//     blocks for each dimension. A block sent to the lower neighbor arrives there as the block of the upper
//     neighbor, even if both are the same rank. Beyond an edge the neighbor is [ProcNull]: the buffers have a
//     block for it, which is neither sent nor written.
//   - In a graph they are those given to [Comm.GraphCreate]. If several edges lead from one rank to another,
//     the first block sent is the first received, and so on.
//
// A blocking collective waits for the messages of the neighbors only. All ranks compare their calls
// (on mpi with [Main] or [Config.Check]), but a blocking call waits for this comparison only with
// Config.Check: otherwise a rank learns of a mismatch from one of its next operations on the
// communicator, or from Close. A nonblocking form is complete when all ranks have started it, and
// so is the first start of a persistent operation.
//
// The deadline is that of the Comm in the grid or graph. To set another one, copy the grid or graph:
//
//	timed := *grid
//	timed.Comm = grid.WithContext(ctx)
type Neighborhood interface {
	neighborhood() *Comm
}

// of returns the communicator of a neighborhood, which may be nil.
func of(n Neighborhood) *Comm {
	if n == nil {
		return nil
	}
	return n.neighborhood()
}

// NeighborAllgather sends send to each destination, and receives a block from each source.
//
// Collective: all ranks of n call it with the same type. Neighbors pass the same length.
//
// Buffers: recv is as long as send times the number of sources, with the blocks in the order of the sources.
// send is not used on a rank without destinations, nor recv on a rank without sources. They do not overlap.
//
// Errors: [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] if a neighbor sends
// another length; those of [Comm.Barrier].
//
// Deadline: [ErrTimeout] names the neighbors that have not sent anything, and the communicator is broken.
func NeighborAllgather[T any](n Neighborhood, send, recv []T) error {
	c := of(n)
	return c.run(data(c.begin(backend.NeighborAllgather, -1), send, recv))
}

// IneighborAllgather is the nonblocking form of [NeighborAllgather].
func IneighborAllgather[T any](n Neighborhood, send, recv []T) (*Request, error) {
	return of(n).start(data(newCall(backend.NeighborAllgather, -1), send, recv))
}

// NeighborAllgatherInit is the persistent form of [NeighborAllgather].
func NeighborAllgatherInit[T any](n Neighborhood, send, recv []T) (*Persistent, error) {
	return of(n).persist(data(newCall(backend.NeighborAllgather, -1), send, recv))
}

// NeighborAllgatherv is [NeighborAllgather] with blocks of different lengths: the one from the i-th source
// has counts[i] elements and is stored at displs[i]. With nil displs the blocks follow each other.
//
// Collective: all ranks of n call it with the same type. counts[i] is the length that the i-th source sends.
//
// Buffers: counts and displs have one entry per source, and the blocks lie inside recv and do not overlap.
// send is not used on a rank without destinations. It does not overlap recv.
//
// Errors, deadline: as for [NeighborAllgather].
func NeighborAllgatherv[T any](n Neighborhood, send, recv []T, counts, displs []int) error {
	c := of(n)
	return c.run(recvParts(data(c.begin(backend.NeighborAllgatherv, -1), send, recv), counts, displs))
}

// IneighborAllgatherv is the nonblocking form of [NeighborAllgatherv].
func IneighborAllgatherv[T any](n Neighborhood, send, recv []T, counts, displs []int) (*Request, error) {
	return of(n).start(recvParts(data(newCall(backend.NeighborAllgatherv, -1), send, recv), counts, displs))
}

// NeighborAllgathervInit is the persistent form of [NeighborAllgatherv].
func NeighborAllgathervInit[T any](n Neighborhood, send, recv []T, counts, displs []int) (*Persistent, error) {
	return of(n).persist(recvParts(data(newCall(backend.NeighborAllgatherv, -1), send, recv), counts, displs))
}

// NeighborAlltoall sends a block to each destination, and receives one from each source.
//
// Collective: all ranks of n call it with the same type. Neighbors pass blocks of the same length.
//
// Buffers: send has one block per destination, and recv one per source, in their order, all of the same
// length. send is not used on a rank without destinations, nor recv on a rank without sources. They do not
// overlap.
//
// Errors, deadline: as for [NeighborAllgather].
func NeighborAlltoall[T any](n Neighborhood, send, recv []T) error {
	c := of(n)
	return c.run(data(c.begin(backend.NeighborAlltoall, -1), send, recv))
}

// IneighborAlltoall is the nonblocking form of [NeighborAlltoall].
func IneighborAlltoall[T any](n Neighborhood, send, recv []T) (*Request, error) {
	return of(n).start(data(newCall(backend.NeighborAlltoall, -1), send, recv))
}

// NeighborAlltoallInit is the persistent form of [NeighborAlltoall].
func NeighborAlltoallInit[T any](n Neighborhood, send, recv []T) (*Persistent, error) {
	return of(n).persist(data(newCall(backend.NeighborAlltoall, -1), send, recv))
}

// NeighborAlltoallv is [NeighborAlltoall] with blocks of different lengths: the one for the i-th destination
// is scounts[i] elements at sdispls[i], and the one from the i-th source is stored as rcounts[i] elements at
// rdispls[i]. With nil displacements the blocks follow each other.
//
// Collective: all ranks of n call it with the same type. A rank sends as many elements to a destination as that
// rank receives from it.
//
// Buffers: scounts and sdispls have one entry per destination, rcounts and rdispls one per source. The blocks
// lie inside their buffer, those of recv do not overlap, and neither do send and recv.
//
// Errors, deadline: as for [NeighborAllgather].
func NeighborAlltoallv[T any](n Neighborhood, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	c := of(n)
	return c.run(recvParts(sendParts(data(c.begin(backend.NeighborAlltoallv, -1), send, recv), scounts, sdispls), rcounts, rdispls))
}

// IneighborAlltoallv is the nonblocking form of [NeighborAlltoallv].
func IneighborAlltoallv[T any](n Neighborhood, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (*Request, error) {
	return of(n).start(recvParts(sendParts(data(newCall(backend.NeighborAlltoallv, -1), send, recv), scounts, sdispls), rcounts, rdispls))
}

// NeighborAlltoallvInit is the persistent form of [NeighborAlltoallv].
func NeighborAlltoallvInit[T any](n Neighborhood, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (*Persistent, error) {
	return of(n).persist(recvParts(sendParts(data(newCall(backend.NeighborAlltoallv, -1), send, recv), scounts, sdispls), rcounts, rdispls))
}
