package flight

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// region is a region that ended, or if ended is 0, did not. Its id is that of its name.
func region(id uint32, began, ended float64) Operation {
	o := Operation{Kind: Region, Named: true, Type: id, Begun: at(began), State: Open}
	if ended > 0 {
		o.State, o.Since = Done, at(ended)
	}
	return o
}

// Regions within each other share a lane, others that overlap do not; what has no end is a moment, or
// lasts until the dump.
func TestTimelineHasRegionsAndOperations(t *testing.T) {
	names := map[uint32]string{7: "assemble", 8: "inner", 9: "other", 10: "open"}
	first := dump(0, 2,
		region(7, 1, 5), region(8, 2, 3), p2p(Send, 1, 4, 2.5, Done), region(9, 4, 6), region(10, 8, 0),
		unknown(coll(backend.Barrier, 0, 0, Done), 8), coll(backend.Allreduce, 1, 9, Open),
	)
	first.Types, first.Host = names, "a"
	second := withoutDump(dump(1, 2, failed(p2p(Recv, 0, 4, 1.5, Open), backend.ErrTimeout, 3.5)))
	second.Host = "b"
	var b bytes.Buffer
	if err := WriteTimeline(&b, []*Dump{first, second}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Events []struct {
			Name, Ph string
			Ts, Dur  float64
			Pid, Tid int
			Args     map[string]any
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, b.Bytes())
	}
	var lines []string
	for _, e := range got.Events {
		if e.Ph == "M" {
			lines = append(lines, fmt.Sprintf("%d %d %s %v", e.Pid, e.Tid, e.Name, e.Args["name"]))
			continue
		}
		lines = append(lines, fmt.Sprintf("%d %d %s %s %g+%g %v", e.Pid, e.Tid, e.Ph, e.Name, e.Ts, e.Dur, e.Args["state"]))
	}
	want := []string{
		"0 0 process_name rank 0 on a", "0 0 thread_name regions", "0 1000 thread_name operations",
		"0 0 X assemble 0+4e+06 done", "0 0 X inner 1e+06+1e+06 done", "0 1000 i Send 1.5e+06+0 done", "0 1 X other 3e+06+2e+06 done",
		"0 0 X open 7e+06+3.2e+07 open", "0 1000 X Allreduce 8e+06+3.1e+07 open",
		"1 0 process_name rank 1 on b", "1 0 thread_name regions", "1 1000 thread_name operations",
		"1 1000 X Recv 500000+2e+06 timed out",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%q\nwant\n%q", lines, want)
	}
}

// A rank in a region is in no operation.
func TestRegionsAreNoOperations(t *testing.T) {
	before := coll(backend.Allreduce, 117, 5, Done)
	waits := coll(backend.Allreduce, 118, 9, Open)
	want := Analyze([]*Dump{dump(0, 2, before, waits), dump(1, 2, before)}).Line
	if got := Analyze([]*Dump{dump(0, 2, before, waits, region(7, 9, 0)), dump(1, 2, before, region(7, 6, 0), region(8, 7, 8))}).Line; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
