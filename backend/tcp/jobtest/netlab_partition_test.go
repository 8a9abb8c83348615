//go:build linux

package jobtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
	"github.com/cohort-hpc/cohort/internal/test/soak"
)

// report is what a rank says of its job.
type report struct {
	Done  int           // operations that were right
	Wrong string        // a result that was not
	Error string        // of the operation that failed, "" if none did
	Kinds []string      // the sentinels that it is
	Took  time.Duration // how long it took to fail
	Close time.Duration // and then to leave
}

// Before mark "now" everything is well; whatever the test does then, the ranks go on, until an operation
// fails or they have done this many.
const (
	nowMark    = "now"
	before     = 20
	afterwards = 400
)

var partitionKinds = map[string]error{"lost": cohort.ErrPeerLost, "timeout": cohort.ErrTimeout, "broken": cohort.ErrBroken,
	"internal": cohort.ErrInternal, "mismatch": cohort.ErrMismatch, "truncate": cohort.ErrTruncate}

// goOn is a rank's part.
func goOn(w *cohort.Comm) error {
	mark, end, err := netlab.Marker()
	if err != nil {
		return err
	}
	defer end()
	var r report
	send, recv := make([]int64, 3000), make([]int64, 3000)
	for k := range before + afterwards {
		if k == before && w.Rank() == 0 {
			if err := mark(nowMark); err != nil {
				return err
			}
		}
		n := []int{1, 3000}[k%2]
		for i := range n {
			send[i] = int64(k*i) + int64(w.Rank())<<32
		}
		begun := time.Now()
		if err := cohort.Allreduce(w, send[:n], recv[:n], cohort.Sum); err != nil {
			r.Error, r.Took = err.Error(), time.Since(begun)
			for name, kind := range partitionKinds {
				if errors.Is(err, kind) {
					r.Kinds = append(r.Kinds, name)
				}
			}
			slices.Sort(r.Kinds)
			break
		}
		size := int64(w.Size())
		for i := range n {
			if want := size*int64(k*i) + size*(size-1)/2<<32; recv[i] != want && r.Wrong == "" {
				r.Wrong = fmt.Sprintf("operation %d: element %d is %#x, want %#x", k, i, recv[i], want)
			}
		}
		r.Done++
	}
	begun := time.Now()
	err = w.Close()
	untaken := r.Error != "" && errors.Is(err, cohort.ErrTimeout) // the last messages to a rank that is cut off
	if err != nil && !errors.Is(err, cohort.ErrPeerLost) && !untaken {
		return err
	}
	r.Close = time.Since(begun)
	return json.NewEncoder(os.Stdout).Encode(r)
}

var blamed = regexp.MustCompile(`(?:not heard from|held up by|waiting for messages from) ranks? ([0-9]+(?:(?:, |-)[0-9]+)*)$`)

// blames reports whether a time-out names the rank that is cut off. On a loaded machine the ranks' deadlines may be too far
// apart for that, where all had arrived before the cut: then it names a rank that waits itself.
func blames(r report, victim int) bool {
	if !slices.Contains(r.Kinds, "timeout") || strings.Contains(r.Error, "all ranks have arrived") {
		return true
	}
	m := blamed.FindStringSubmatch(r.Error)
	if m == nil {
		return false
	}
	return slices.ContainsFunc(strings.Split(m[1], ", "), func(part string) bool {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		return first <= victim && victim <= last
	})
}

// TestPartitionedRanksEndWithTheRightErrors has the network between ranks break in the middle of their work: cuts of all kinds, for
// good and for a while, and bytes that change. Every rank gets right results or an error that is due,
// names who is cut off, and ends. COHORT_SOAK=n makes n runs of each, m-n those from m to n.
func TestPartitionedRanksEndWithTheRightErrors(t *testing.T) {
	asRank(t, goOn)
	if !needHosts(t) {
		return
	}
	const ranks, coordinator = 4, 4
	isolate := func(n *netlab.Net, victim int) { n.Isolate(victim, true) }
	const limit = 500 * time.Millisecond
	beats, deadline := []string{"COHORT_HEARTBEAT=" + limit.String()}, []string{"COHORT_HEARTBEAT=off", "COHORT_TIMEOUT=" + limit.String()}
	runs := 2
	if testing.Short() {
		runs = 1
	}
	first, last := soak.Runs(t, runs)
	for _, c := range []struct {
		what string
		env  []string
		now  func(n *netlab.Net, victim int) // what happens
		then func(n *netlab.Net, victim int) // when some packets were lost by it; nil for nothing
		may  []string                        // what errors may be, one of them; nil: there must be none
		who  bool                            // the others must name the victim
		more bool                            // left out with -short
	}{
		{what: "one rank is cut off, heartbeat", env: beats, now: isolate, may: []string{"lost"}, who: true},
		{what: "one rank is cut off, deadline", env: deadline, now: isolate, may: []string{"timeout", "lost"}},
		{what: "no rank receives from one rank, heartbeat", more: true, env: beats, may: []string{"lost"},
			now: func(n *netlab.Net, victim int) { n.Set(victim, -1, netlab.Path{Cut: true}) }},
		{what: "one rank receives nothing, heartbeat", more: true, env: beats, may: []string{"lost"},
			now: func(n *netlab.Net, victim int) { n.Set(-1, victim, netlab.Path{Cut: true}) }},
		{what: "two ranks are cut off from each other, heartbeat", env: beats, may: []string{"lost"}, now: func(n *netlab.Net, victim int) {
			n.Set(victim, (victim+1)%ranks, netlab.Path{Cut: true})
			n.Set((victim+1)%ranks, victim, netlab.Path{Cut: true})
		}},
		{what: "two and two, heartbeat", more: true, env: beats, may: []string{"lost"}, now: func(n *netlab.Net, victim int) {
			for i := range 2 {
				for k := range 2 {
					a, b := (victim+i)%ranks, (victim+2+k)%ranks
					n.Set(a, b, netlab.Path{Cut: true})
					n.Set(b, a, netlab.Path{Cut: true})
				}
			}
		}},
		{what: "a cut that heals", now: isolate, then: func(n *netlab.Net, victim int) { n.Isolate(victim, false) }},
		{what: "the coordinator is cut off", more: true, now: func(n *netlab.Net, _ int) { n.Isolate(coordinator, true) }},
	} {
		if testing.Short() && c.more {
			continue
		}
		t.Run(c.what, func(t *testing.T) {
			var took, closed []time.Duration
			kinds := map[string]int{}
			for run := first; run <= last; run++ {
				victim := (run - 1) % ranks
				n, err := netlab.New(netlab.Config{Hosts: ranks + 1, Seed: uint64(run)})
				if err != nil {
					t.Fatal(err)
				}
				happened := make(chan struct{})
				n.On(nowMark, func() {
					c.now(n, victim)
					close(happened)
				})
				wait := startRanks(t, n, ranks, c.env...)
				var outcomes []outcome
				over := make(chan struct{})
				go func() {
					outcomes = wait()
					close(over)
				}()
				if c.then != nil {
					lost := func() int { return n.Count(victim, (victim+1)%ranks).Lost + n.Count((victim+1)%ranks, victim).Lost }
					select {
					case <-happened:
						for running := true; running && lost() < 2; runtime.Gosched() {
							select {
							case <-over:
								running = false
							default:
							}
						}
						c.then(n, victim)
					case <-over:
					}
				}
				<-over
				for rank, o := range outcomes {
					var r report
					say := func(format string, args ...any) {
						t.Errorf("victim %d, rank %d: %s", victim, rank, fmt.Sprintf(format, args...))
					}
					if err := json.Unmarshal([]byte(o.text), &r); err != nil || o.err != nil {
						say("%v, %s", o.err, o.text)
						continue
					}
					if r.Wrong != "" {
						say("%s", r.Wrong)
					}
					if r.Error != "" {
						took, closed = append(took, r.Took), append(closed, r.Close)
						kinds[strings.Join(r.Kinds, "+")]++
					}
					switch {
					case c.may == nil && r.Error != "":
						say("after %v: %s", r.Took, r.Error)
					case c.may == nil:
					case r.Error == "":
						say("no error in %d operations", r.Done)
					case !slices.ContainsFunc(r.Kinds, func(k string) bool { return slices.Contains(c.may, k) }):
						say("%v: %s", r.Kinds, r.Error)
					case rank != victim && !blames(r, victim):
						say("it does not say who is missing: %s", r.Error)
					case c.who && rank != victim && !strings.Contains(r.Error, fmt.Sprintf("rank %d ", victim)):
						say("it does not say who is cut off: %s", r.Error)
					}
				}
				n.Close()
			}
			slices.Sort(took)
			slices.Sort(closed)
			if k := len(took); k > 0 {
				t.Logf("%d runs, errors %v: half within %v, all within %v of the call; Close takes %v, at most %v", last-first+1, kinds,
					took[k/2].Round(time.Millisecond), took[k-1].Round(time.Millisecond), closed[k/2].Round(time.Millisecond), closed[k-1].Round(time.Millisecond))
			}
		})
	}
}
