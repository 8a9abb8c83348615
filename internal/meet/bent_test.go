package meet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// TestRendezvousOverDamagedConnection damages the connection of one rank anywhere between its first byte and its
// last: bytes change, are missing, or are repeated, or the connection ends. Either all ranks get the right table, or
// every rank gets an error, in bounded time. If only the last message is damaged, only its receiver can notice; the
// others then learn it from that rank's end.
func TestRendezvousOverDamagedConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: the rendezvous over connections that lose, repeat, and change bytes; make test-all runs it")
	}
	const size, odd, runs = 4, 2, 48
	var want []Member
	for r := range size {
		want = append(want, member(r))
	}
	var all sync.WaitGroup
	running := make(chan struct{}, 8)
	outcomes := map[string]int{}
	var mu sync.Mutex
	for run := range runs {
		dice := rand.New(rand.NewPCG(uint64(run), 5))
		way := dice.IntN(2)
		fault := netlab.Fault{At: dice.Int64N([]int64{250, 480}[way]), N: 1 + dice.IntN(16)} // a rank sends less than it receives
		fault.Do = []netlab.Action{netlab.Flip, netlab.Drop, netlab.Duplicate, netlab.End, netlab.Reset, netlab.Silence}[run%6]
		var plans [2]netlab.Plan
		plans[way].Faults = []netlab.Fault{fault}
		l := listen(t, rankOf(0, size), 0)
		gate := bend(t, l.Addrs()[0].String(), plans)
		all.Go(func() {
			running <- struct{}{}
			defer func() { <-running }()
			// A rank that waits for missing bytes waits until its deadline; most else takes some milliseconds.
			limit := 12 * time.Second
			if fault.Do == netlab.Drop || fault.Do == netlab.Silence {
				limit = 3 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var errs [size]error
			var tables [size][]Member
			var ranks sync.WaitGroup
			begun := time.Now()
			for r := range size {
				ranks.Go(func() {
					var m *Meeting
					switch address := l.Addrs()[0].String(); r {
					case 0:
						m, errs[r] = lead(ctx, newCoordinator(l), want[r])
					case odd:
						m, errs[r] = Join(ctx, rankOf(r, size), gate, 0, want[r])
					default:
						m, errs[r] = Join(ctx, rankOf(r, size), address, 0, want[r])
					}
					if errs[r] == nil {
						tables[r], errs[r] = m.Members, m.Confirm(ctx, ready)
					}
				})
			}
			ranks.Wait()
			say := func(format string, args ...any) {
				t.Errorf("run %d, %v on way %d: %s; the errors: %v", run, fault, way, fmt.Sprintf(format, args...), errs)
			}
			if took := time.Since(begun); took > time.Minute {
				say("it took %v", took)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errs[0] != nil:
				outcomes["errors"]++
			case errs[odd] != nil:
				outcomes["a job, and an error of the rank"]++
			default:
				outcomes["a job"]++
			}
			if testing.Verbose() {
				t.Logf("run %d: %v on way %d: %v", run, fault, way, errs[odd])
			}
			for r, err := range errs {
				switch {
				case err == nil && !reflect.DeepEqual(tables[r], want):
					say("rank %d has the table %v", r, tables[r])
				case errs[0] == nil && errors.Is(err, backend.ErrTimeout): // on a busy machine, its time ran out when the message came
				case r != odd && (err == nil) != (errs[0] == nil), r == odd && err == nil && errs[0] != nil:
					say("rank %d and rank 0 do not agree on whether there is a job", r)
				}
			}
		})
	}
	all.Wait()
	if t.Log(outcomes); outcomes["errors"] == 0 || outcomes["a job"] == 0 {
		t.Errorf("the faults are all alike: %v", outcomes)
	}
}

// bend opens a relay to an address. It damages the first connection by the plans, and no later one.
func bend(t *testing.T, to string, plans [2]netlab.Plan) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			a, err := l.AcceptTCP()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			defer netlab.Relay(a, b.(*net.TCPConn), plans[0], plans[1]).Close()
			plans = [2]netlab.Plan{}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-over
	})
	return l.Addr().String()
}
