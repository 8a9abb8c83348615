package cohort

import (
	"fmt"
	"slices"
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
//
// Not collective.
func (g *Graph) Sources() []int {
	if g == nil {
		return nil
	}
	return slices.Clone(g.sources)
}

// Destinations returns the ranks to which there is an edge from the calling rank.
//
// Not collective.
func (g *Graph) Destinations() []int {
	if g == nil {
		return nil
	}
	return slices.Clone(g.destinations)
}
