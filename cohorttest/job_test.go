package cohorttest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// play runs a scenario that is not in the suite with n goroutine ranks.
func play(t *testing.T, n int, s scenario) ([]map[string]report, error) {
	t.Helper()
	j := &Job{Ranks: n, Dir: t.TempDir(), Patience: time.Hour}
	err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
		out, err := os.Create(filepath.Join(j.Dir, strconv.Itoa(world.Rank())))
		if err != nil {
			return err
		}
		defer out.Close()
		return j.runOne(world, s, json.NewEncoder(out))
	})
	all, e := j.reports()
	if e != nil {
		t.Fatal(e)
	}
	return all, err
}

func TestFailedCheckIsReportedAndRanksGoOn(t *testing.T) {
	all, err := play(t, 3, scenario{name: "x", body: func(r *Rank) {
		if r.Rank == 1 {
			r.Errorf("one is not %d", 2)
			r.Is(cohort.Send(r.Comm, []int32{1}, 99, 0), cohort.ErrTag, "Send to 99")
		}
		r.OK(r.Comm.Barrier())
	}})
	if err != nil {
		t.Fatal(err)
	}
	for rank, r := range all {
		x := r["x"]
		if !x.Ended || (len(x.Errs) == 2) != (rank == 1) {
			t.Errorf("rank %d: %+v", rank, x)
		}
	}
	errs := all[1]["x"].Errs
	if errs[0] != "one is not 2" || !strings.Contains(errs[1], "Send to 99: got error") || !strings.Contains(errs[1], "invalid rank") {
		t.Errorf("%q", errs)
	}
}

func TestRankThatStopsEndsTheScenarioWithItsReason(t *testing.T) {
	cause := errors.New("no way on")
	for name, body := range map[string]func(r *Rank){
		"no way on":               func(r *Rank) { r.OK(cause) },
		"index out of":            func(r *Rank) { _ = []int{}[r.Size] },
		"with a stack\ngoroutine": func(r *Rank) { panic("with a stack") },
	} {
		all, err := play(t, 3, scenario{name: "x", body: func(r *Rank) {
			if r.Rank == 2 {
				body(r)
			}
			r.OK(r.World.Barrier())
		}})
		if err == nil {
			t.Errorf("%s: the job has no error", name)
		}
		if x := all[2]["x"]; !x.Ended || len(x.Errs) != 1 || !strings.Contains(x.Errs[0], name) {
			t.Errorf("%s: rank 2 reports %+v", name, x)
		}
		for rank := range 2 {
			if x := all[rank]["x"]; !x.Ended || len(x.Errs) != 1 || !strings.Contains(x.Errs[0], "rank 2") {
				t.Errorf("%s: rank %d reports %+v", name, rank, x)
			}
		}
	}
}

func TestLostRankBeginsAndDoesNotEnd(t *testing.T) {
	all, err := play(t, 2, scenario{name: "x", alone: true, body: func(r *Rank) {
		if r.Rank == 1 {
			perish(r)
		}
		r.Is(r.World.Barrier(), cohort.ErrPeerLost, "Barrier")
	}})
	if !errors.As(err, new(lostRank)) {
		t.Errorf("the job's error is %v", err)
	}
	if x, begun := all[1]["x"]; !begun || x.Ended {
		t.Errorf("the lost rank reports %+v", x)
	}
	if x := all[0]["x"]; !x.Ended || len(x.Errs) > 0 {
		t.Errorf("the other rank reports %+v", x)
	}
}

func TestJobRefusesWrongWorldAndUnknownScenario(t *testing.T) {
	for _, x := range []struct {
		job  *Job
		text string
	}{
		{&Job{Ranks: 3}, "the world has 2 ranks, the job has 3"},
		{&Job{Ranks: 2, Scenarios: []string{"nonsense"}}, `there is no scenario "nonsense"`},
	} {
		x.job.Dir = t.TempDir()
		err := cohort.Run(context.Background(), 2, x.job.Run)
		if err == nil || !strings.Contains(err.Error(), x.text) {
			t.Errorf("got %v, want %q", err, x.text)
		}
	}
}

// Every element that changes is found, inside and outside of the data.
func TestBufferDiffFindsEveryChange(t *testing.T) {
	for i := -guards; i < 4+guards; i++ {
		b := newBuffer(paddeds, 4)
		for j := range b.data {
			b.data[j] = paddeds.elem(j)
		}
		want := image(b)
		if at, ok := b.diff(want, nil); !ok {
			t.Fatalf("element %d differs in a copy", at)
		}
		b.all[i+guards].C = !b.all[i+guards].C
		if at, ok := b.diff(want, nil); ok || at != i {
			t.Errorf("a change of element %d is seen at %d (%v)", i, at, ok)
		}
		loose := func(j int) bool { return j >= 2 && j < 4 }
		if _, ok := b.diff(want, loose); ok != loose(i) {
			t.Errorf("a change of element %d: equal %v, loose %v", i, ok, loose(i))
		}
	}
}

// Blocks are apart from each other and inside the buffer, and the values differ between
// ranks and places.
func TestOracleBlocksAreApartAndValuesDiffer(t *testing.T) {
	counts := []int{3, 0, 2, 5}
	for name, layout := range map[string]func([]int) ([]int, int){"backwards": backwards, "forwards": forwards} {
		displs, n := layout(counts)
		used := make([]int, n)
		for i, c := range counts {
			for j := range c {
				used[displs[i]+j]++
			}
		}
		for i, k := range used {
			if k > 1 {
				t.Errorf("%s: element %d is in %d blocks", name, i, k)
			}
		}
	}
	same := 0
	for i := range 1000 {
		if value(1, 0, i) == value(1, 1, i) || value(1, 0, i) == value(2, 0, i) || value(1, 0, i) == value(1, 0, i+1) {
			same++
		}
	}
	if same > 100 { // three comparisons of numbers below 97: 31 are expected
		t.Errorf("%d of 1000 values are equal for different seeds, ranks or places", same)
	}
}

func TestScenarioNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range all() {
		if s.name == "" || s.body == nil || seen[s.name] {
			t.Errorf("scenario %q occurs twice, or is empty", s.name)
		}
		seen[s.name] = true
	}
}
