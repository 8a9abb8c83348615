package values

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/topo"
)

// A value of 1 GiB is sent between two ranks of this process.
func TestLargeValuesArrive(t *testing.T) {
	const n, needs = 1 << 30, 10 << 30
	if testing.Short() {
		t.Skip("left out with -short: a value of 1 GiB; make test-all sends it")
	}
	if free, from := topo.Room(os.DirFS("/")); free >= 0 && free < needs {
		t.Skipf("needs %d GiB of memory, %s allows %d", needs>>30, from, free>>30)
	}
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		if world.Rank() == 0 {
			return Send(world, strings.Repeat("x", n), 1, 0)
		}
		x, st, err := Recv[string](world, 0, 0)
		if err == nil && (len(x) != n || strings.Count(x, "x") != n || st.Bytes() < n) {
			err = fmt.Errorf("%d bytes arrived, want %d; status %+v", len(x), n, st)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
