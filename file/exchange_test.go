package file

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// dealt is a file whose bytes are dealt to ranks in blocks of random lengths, some to nobody.
type dealt struct {
	want   []byte // nobody's bytes are 0xEE
	lens   [][]int
	displs [][]int
	data   [][]byte // by rank, in the order of its blocks
}

func deal(rng *rand.Rand, ranks, size, longest int, holes, shuffled bool) *dealt {
	d := &dealt{want: bytes.Repeat([]byte{0xEE}, size), lens: make([][]int, ranks), displs: make([][]int, ranks), data: make([][]byte, ranks)}
	for at := 0; at < size; {
		n := min(1+rng.IntN(longest), size-at)
		if r := rng.IntN(ranks + 1); r < ranks {
			d.lens[r], d.displs[r] = append(d.lens[r], n), append(d.displs[r], at)
		} else if !holes {
			continue
		}
		at += n
	}
	for r := range ranks {
		if shuffled {
			order := rng.Perm(len(d.lens[r]))
			lens, displs := slices.Clone(d.lens[r]), slices.Clone(d.displs[r])
			for i, j := range order {
				d.lens[r][i], d.displs[r][i] = lens[j], displs[j]
			}
		}
		for i, n := range d.lens[r] {
			for j := range n {
				x := byte(rng.Uint32())
				d.want[d.displs[r][i]+j] = x
				d.data[r] = append(d.data[r], x)
			}
		}
	}
	return d
}

// What ranks write in blocks of any lengths and places is in the file, nothing else is changed, and the ranks read it
// back.
func TestBlocksAnywhereReachTheFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	name := filepath.Join(t.TempDir(), "f")
	for _, c := range []struct {
		ranks, size, longest int
		holes, shuffled      bool
	}{
		{1, 1000, 10, true, false}, {3, 1000, 10, true, false}, {2, 1 << 20, 100, false, false}, {4, 3<<20 + 17, 500, true, true},
		{5, 17 << 20, 9000, false, false}, {3, 13 << 20, 4000, true, true}, {4, 4 << 20, 1 << 20, true, false}, {2, 5 << 20, 2000, false, true},
	} {
		for _, off := range []int64{0, 5<<20 - 1} {
			if off > 0 && c.size > 10<<20 && testing.Short() {
				continue
			}
			what := fmt.Sprintf("%+v at %d", c, off)
			d := deal(rng, c.ranks, c.size, c.longest, c.holes, c.shuffled)
			want := append(bytes.Repeat([]byte{0xEE}, int(off)), d.want...)
			if err := os.WriteFile(name, bytes.Repeat([]byte{0xEE}, len(want)), 0o600); err != nil {
				t.Fatal(err)
			}
			err := cohort.Run(t.Context(), c.ranks, func(world *cohort.Comm) error {
				f, err := Open(world, name, os.O_RDWR, 0)
				if err != nil {
					return err
				}
				l := cohort.Indexed(d.lens[world.Rank()], d.displs[world.Rank()])
				mine := d.data[world.Rank()]
				if err := WriteView(f, mine, off, l); err != nil {
					return err
				}
				got := make([]byte, len(mine))
				if err := ReadView(f, got, off, l); err != nil {
					return err
				}
				if !bytes.Equal(got, mine) {
					t.Errorf("%s: rank %d reads something else than it wrote", what, world.Rank())
				}
				return f.Close()
			})
			got, e := os.ReadFile(name)
			if err != nil || e != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: %v, %v; or the file has another content", what, err, e)
			}
		}
	}
}
