package shm

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

func init() {
	// short is a rank that can open only as many files more as SHM_TEST_ROOM says.
	outsiders["short"] = func(string) error {
		var rank, size, room int
		if _, err := fmt.Sscan(os.Getenv("SHM_TEST_ROOM"), &rank, &size, &room); err != nil {
			return err
		}
		if err := ranktest.LimitFiles(room); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err := Open(ctx, backend.Config{Rank: rank, Size: size, Job: os.Getenv("SHM_TEST_JOB")})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.(backend.Collectives).Collective(nil, &backend.Call{Coll: backend.Barrier})
		return err
	}
}

// TestTooFewDescriptorsIsAnErrorOnAllRanks: a rank needs a socket, the segment, and a descriptor for every
// other rank. With fewer the job does not start on any rank, and each reports what the limit has to be.
func TestTooFewDescriptorsIsAnErrorOnAllRanks(t *testing.T) {
	type limited struct {
		ranks, room int
		short       int // the rank that is limited; -1: all are
		works       bool
	}
	cases := []limited{
		{2, 0, -1, false}, {2, 1, -1, false}, {2, 2, -1, false}, {2, 3, -1, true},
		{3, 3, -1, false}, {3, 4, -1, true},
		{5, 0, -1, false}, {5, 2, -1, false}, {5, 5, -1, false}, {5, 6, -1, true},
		{8, 8, -1, false}, {8, 9, -1, true},
		{4, 2, 0, false}, {4, 4, 0, false}, // the others learn of it
	}
	if testing.Short() { // without those in which rank 0 waits for ranks that never come
		cases = []limited{{2, 2, -1, false}, {2, 3, -1, true}, {8, 9, -1, true}, {4, 4, 0, false}}
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%d ranks, %d left on %d", c.ranks, c.room, c.short), func(t *testing.T) {
			jobs++
			job := fmt.Sprintf("SHM_TEST_JOB=%d-%d-files", os.Getpid(), jobs)
			ranktest.FewFiles(t, c.ranks, c.works, func(rank int) []string {
				room := c.room
				if c.short >= 0 && rank != c.short {
					room = 100
				}
				return []string{"SHM_TEST_OUTSIDER=short", job, fmt.Sprintf("SHM_TEST_ROOM=%d %d %d", rank, c.ranks, room)}
			})
		})
	}
}
