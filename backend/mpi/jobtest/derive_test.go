//go:build cgo && linux

package jobtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestMessagesStayApartFromDup makes communicators of a communicator on which messages of many tags wait, and a receive
// from any rank with any tag. Open MPI's MPI_Comm_create_group sends messages of its own with its argument tag.
func TestMessagesStayApartFromDup(t *testing.T) {
	const tags = 100
	rank("tags", func(w *cohort.Comm) error {
		derive := func() error {
			for range tags / 4 {
				if _, err := w.Dup(); err != nil {
					return err
				}
			}
			return nil
		}
		other := 1 - w.Rank()
		content := func(rank, tag int) []int { return []int{rank, tag, 3, 4} }
		for tag := range tags {
			must.Get(cohort.Isend(w, content(w.Rank(), tag), other, tag))
		}
		must.OK(derive())
		for tag := range tags {
			got := make([]int, 4)
			must.Get(cohort.Recv(w, got, other, tag))
			if want := content(other, tag); !slices.Equal(got, want) {
				return fmt.Errorf("rank %d received %v, want %v", w.Rank(), got, want)
			}
		}

		got := make([]int, 4)
		q := must.Get(cohort.Irecv(w, got, cohort.AnySource, cohort.AnyTag))
		must.OK(derive())
		must.OK(cohort.Send(w, content(w.Rank(), 7), other, 7))
		st := must.Get(q.Wait())
		if want := content(other, 7); !slices.Equal(got, want) || st.Source != other || st.Tag != 7 {
			return fmt.Errorf("rank %d received %v of tag %d from rank %d, want %v", w.Rank(), got, st.Tag, st.Source, want)
		}
		return nil
	})
	for _, name := range libraries {
		t.Run(name, func(t *testing.T) { start(t, name, 2, "tags").must(t) })
	}
}
