//go:build cgo && linux

package mpi

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// Messages of different kinds, and of CreateGroup with different tags, never have the same tag of MPI, however small its
// range is. The standard guarantees 32767.
func TestTagsOfDifferentKindsDiffer(t *testing.T) {
	const most = 1 << 18 // of each kind, so that small ranges repeat
	for _, maxTag := range []int{32767, 1 << 20, 1<<30 - 1} {
		f := newTags(maxTag)
		kinds := map[int]string{}
		use := func(tag int, kind string) {
			if other := kinds[tag]; tag < 0 || tag > maxTag || other != "" && other != kind {
				t.Fatalf("up to %d: tag %d of a %s belongs to %q", maxTag, tag, kind, other)
			}
			kinds[tag] = kind
		}
		use(f.notice(), "notice")
		use(f.report(), "report")
		use(f.answer(), "answer")
		use(f.failure(), "failure")
		use(f.last(0), "round of drain")
		use(f.last(1), "round of drain")
		use(f.commit(), "transaction")
		for i := range uint32(most) {
			use(f.of(backend.CheckTag(i)), "collective")
			use(f.of(backend.DataTag(i)), "collective")
			use(f.of(backend.PersistentTag(i)), "persistent collective")
			use(f.of(backend.PersistentTag(i)-1), "persistent collective")
		}
		use(f.of(backend.PersistentTag(1<<28-1)-1), "persistent collective")
		use(f.of(backend.NoTag), "no message")
		for i := range min(backend.MostGroupTag(uint(maxTag))+1, most) {
			use(f.of(backend.GroupTag(int(i))), fmt.Sprint("CreateGroup with tag ", i))
		}
		use(f.of(backend.GroupTag(int(backend.MostGroupTag(uint(maxTag))))), fmt.Sprint("CreateGroup with tag ", backend.MostGroupTag(uint(maxTag))))
	}
}
