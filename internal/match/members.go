package match

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// Members converts between the ranks of a communicator and those of the job.
type Members struct {
	World []int   // world rank of each rank
	ranks []int32 // the inverse, -1 for ranks of the job that are not members
}

// NewMembers returns the members with these world ranks.
func NewMembers(world []int) Members {
	m := Members{World: world, ranks: make([]int32, slices.Max(world)+1)}
	for w := range m.ranks {
		m.ranks[w] = -1
	}
	for r, w := range world {
		m.ranks[w] = int32(r)
	}
	return m
}

// Size returns the number of members.
func (m *Members) Size() int { return len(m.World) }

// WorldRank returns the world rank of a rank.
func (m *Members) WorldRank(rank int) int { return m.World[rank] }

// RankOf returns the rank of a world rank, or -1 if it is not a member.
func (m *Members) RankOf(world int) int {
	if world < 0 || world >= len(m.ranks) {
		return -1
	}
	return int(m.ranks[world])
}

// Some returns the world ranks of some members.
func (m *Members) Some(ranks []int) []int {
	world := slices.Clone(ranks)
	for i, r := range ranks {
		world[i] = m.World[r]
	}
	return world
}

// Pattern returns the pattern of a receive in the communicator with this context.
func (m *Members) Pattern(ctx uint32, source, tag int) Env {
	env := Env{Ctx: ctx, Source: backend.AnySource, Tag: int32(tag)}
	if source >= 0 {
		env.Source = int32(m.World[source])
	}
	return env
}
