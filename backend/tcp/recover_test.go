//go:build linux || darwin

package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

func init() {
	// Ranks die one after the other at random moments of a stream of collectives and messages, and
	// those that are left go on without them until they are two.
	programs["recover"] = func(c backend.Comm) error {
		seed, _ := strconv.ParseUint(os.Getenv("TCP_TEST_SEED"), 10, 64)
		random := rand.New(rand.NewPCG(seed, 0)) // the same on all ranks
		log, err := os.Create(stampOf(c.Rank()) + ".log")
		if err != nil {
			return err
		}
		var lost []int
		for id := uint32(1); c.Size() > 2; id++ {
			victim := random.IntN(c.Size())
			moment := time.Duration(random.IntN(3000)) * time.Microsecond
			world := c.WorldRank(victim)
			if c.Rank() == victim {
				stamp, err := os.Create(stampOf(world))
				if err == nil {
					err = rounds(c, 20) // all can work with each other
				}
				if err != nil {
					return fmt.Errorf("without %v: %w", lost, err)
				}
				go func() {
					time.Sleep(moment) // when does not matter
					binary.Write(stamp, binary.LittleEndian, time.Now().UnixNano())
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}()
			}
			err := traffic(c)
			noticed := time.Now()
			if !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ", world)) {
				return fmt.Errorf("after the end of rank %d: %w", world, err)
			}
			var at int64
			stamp, err := os.Open(stampOf(world))
			if err == nil {
				err = binary.Read(stamp, binary.LittleEndian, &at)
			}
			if err != nil {
				return err
			}
			lost = append(lost, world)
			slices.Sort(lost)
			begun := time.Now()
			next, err := shrink(c, id, lost)
			if err != nil {
				return fmt.Errorf("shrinking without %v: %w", lost, err)
			}
			fmt.Fprintf(log, "%d noticed %d\n%d shrunk %d\n", c.Size(), noticed.UnixNano()-at, c.Size(), time.Since(begun).Nanoseconds())
			c = next
		}
		if err := rounds(c, 20); err != nil {
			return fmt.Errorf("without %v: %w", lost, err)
		}
		fmt.Fprintln(log, "end")
		return nil
	}
	// One rank is stopped for longer than the heartbeat allows, and then continued.
	programs["stopped"] = func(c backend.Comm) error {
		b := &backend.Bound{Timeout: time.Minute}
		pid := make([]byte, 8)
		if c.Rank() == 2 {
			binary.LittleEndian.PutUint64(pid, uint64(os.Getpid()))
			if err := c.Send(b, pid, 0, 1, backend.Standard); err != nil {
				return err
			}
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return err
			}
			_, err := c.Recv(b, nil, 0, 2)
			return wantErr(err, "rank 2 was declared lost by rank ", "silent")
		}
		if c.Rank() == 0 {
			if _, err := c.Recv(b, pid, 2, 1); err != nil {
				return err
			}
			defer func() { syscall.Kill(int(binary.LittleEndian.Uint64(pid)), syscall.SIGCONT) }() // or it would stay when this fails
		}
		_, err := c.Recv(b, pid, 2, 3)
		if err := wantErr(err, "rank 2 (process 2 on here) was silent for 2s"); err != nil {
			return err
		}
		if lost := c.(agree.Comm).Failed(); !slices.Equal(lost, []int{2}) {
			return fmt.Errorf("%v are lost, want 2", lost)
		}
		next, err := c.(agree.Comm).Acknowledge([]int{0, 1}, 1, []int{2})
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := syscall.Kill(int(binary.LittleEndian.Uint64(pid)), syscall.SIGCONT); err != nil {
				return err
			}
		}
		return rounds(next, 100)
	}
	// All leave at once, and none takes another's end for a death.
	programs["leaving"] = func(c backend.Comm) error {
		if err := rounds(c, 3); err != nil {
			return err
		}
		c.Close()
		if lost := c.(agree.Comm).Failed(); lost != nil {
			return fmt.Errorf("%v are lost", lost)
		}
		return nil
	}
}

func wantErr(err error, words ...string) error {
	if !errors.Is(err, backend.ErrPeerLost) {
		return fmt.Errorf("%w, want ErrPeerLost", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("%w, want %q in it", err, w)
		}
	}
	return nil
}

func stampOf(rank int) string { return filepath.Join(os.Getenv("TCP_TEST_DIR"), strconv.Itoa(rank)) }

// traffic is collectives until one fails.
func traffic(c backend.Comm) error {
	for {
		if err := rounds(c, 1000); err != nil {
			return err
		}
	}
}

// rounds are sums of short and long vectors, and messages from each rank to the next.
func rounds(c backend.Comm, times int) error {
	b := &backend.Bound{Timeout: time.Minute}
	op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: float64s, Apply: kernel.For(backend.OpSum, backend.Float64)}
	runner := sched.New(c)
	n, me := c.Size(), c.Rank()
	for i := range times {
		count := []int{1, 10000, 3}[i%3]
		in, out := make([]byte, 8*count), make([]byte, 8*count)
		for k := range count {
			binary.LittleEndian.PutUint64(in[8*k:], math.Float64bits(float64(me+k)))
		}
		call := &backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: float64s, Count: count, Send: in, Recv: out, Seq: uint32(i)}
		if err := runner.Run(b, call, true); err != nil {
			return err
		}
		for k := range count {
			if got, want := math.Float64frombits(binary.LittleEndian.Uint64(out[8*k:])), float64(n*(n-1)/2+n*k); got != want {
				return fmt.Errorf("round %d: element %d of the sum is %v, want %v", i, k, got, want)
			}
		}
		size := []int{9, 2 * engine.EagerMax, 5000}[i%3]
		send, recv := &backend.Request{}, make([]byte, size)
		send.Begin()
		c.Isend(send, ranktest.Fill(make([]byte, size), me+i), (me+1)%n, 1, backend.Standard)
		_, err := c.Recv(b, recv, (me+n-1)%n, 1)
		if err := errors.Join(err, c.Await(b, send), send.Err); err != nil {
			return err
		}
		if want := ranktest.Fill(make([]byte, size), (me+n-1)%n+i); string(want) != string(recv) {
			return fmt.Errorf("round %d: a message of %d bytes is wrong", i, size)
		}
	}
	return nil
}

// shrink makes the communicator of those that are left, who agree on who that is.
func shrink(c backend.Comm, id uint32, want []int) (backend.Comm, error) {
	b := &backend.Bound{Timeout: time.Minute}
	made, err := c.(agree.Comm).Control(1<<31 | id)
	if err != nil {
		return nil, err
	}
	s := made.(agree.Comm)
	defer s.Close()
	n, ranks := c.Size(), slices.Max(want)+1
	for m := range n {
		ranks = max(ranks, c.WorldRank(m)+1)
	}
	rec := agree.Record{Lost: agree.NewSet(ranks), Gone: agree.NewSet(n)}
	dead := agree.NewSet(n)
	for m := range n {
		if w := c.WorldRank(m); slices.Contains(s.Failed(), w) {
			rec.Lost.Add(w)
			dead.Add(m)
		}
	}
	a := agree.New(c.Rank(), n, ranks, 1, rec, dead)
	for {
		for msg, to := a.Next(); msg != nil; msg, to = a.Next() {
			for _, m := range to {
				if err := s.Send(b, msg, m, 0, backend.Standard); err != nil {
					a.Lose(m)
				}
			}
		}
		out, ok := a.Decided()
		if !ok {
			for m := range n {
				if !a.Wants(m) {
					continue
				}
				buf := make([]byte, agree.Size(n, ranks))
				if _, err := s.Recv(b, buf, m, 0); errors.Is(err, backend.ErrPeerLost) {
					a.Lose(m)
				} else if err = errors.Join(err, a.Receive(m, buf)); err != nil {
					return nil, err
				}
				break
			}
			continue
		}
		lost := out.Lost.List()
		a.Dead().AddAll(out.Gone)
		var left []int
		for m := range n {
			if w := c.WorldRank(m); a.Dead().Has(m) {
				lost = append(lost, w)
				s.Declare(w, nil)
			} else {
				left = append(left, m)
			}
		}
		slices.Sort(lost)
		if lost = slices.Compact(lost); len(left) != n-1 || !slices.Contains(lost, want[0]) && len(want) == 1 {
			return nil, fmt.Errorf("the ranks agree that %v are lost and %v left, want %v lost", lost, left, want)
		}
		return c.(agree.Comm).Acknowledge(left, id, lost)
	}
}

// Jobs of which ranks die at random moments go on without them. TCP_TEST_JOBS is how many; with -v
// the times are shown.
func TestJobsGoOnAfterRandomDeaths(t *testing.T) {
	jobs := 6
	if testing.Short() {
		jobs = 3
	}
	if n, err := strconv.Atoi(os.Getenv("TCP_TEST_JOBS")); err == nil {
		jobs = n
	}
	seed := uint64(time.Now().UnixNano())
	times := map[string][]float64{} // by size and what
	for i := range jobs {
		n := []int{4, 3, 8}[i%3]
		dir := t.TempDir()
		errs := run(t, "recover", n, "TCP_TEST_DIR="+dir, fmt.Sprint("TCP_TEST_SEED=", seed+uint64(i)))
		killed, ended := 0, 0
		worst := map[string]float64{} // of all ranks
		for r, err := range errs {
			if err != nil && strings.Contains(err.Error(), "killed") {
				killed++
			} else if err != nil {
				t.Errorf("seed %d: %v", seed+uint64(i), err)
			}
			b, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(r)+".log"))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				if line == "end\n" {
					ended++
					continue
				}
				var size int
				var what string
				var ns float64
				if n, _ := fmt.Sscan(line, &size, &what, &ns); n == 3 { // who is killed may do so while it writes
					key := fmt.Sprintf("%s by the others of %d", what, size)
					worst[key] = max(worst[key], ns/1e6)
				}
			}
		}
		if killed != n-2 || ended != 2 {
			t.Fatalf("seed %d: of %d ranks %d were killed and %d have ended well", seed+uint64(i), n, killed, ended)
		}
		for what, ms := range worst {
			times[what] = append(times[what], ms)
		}
	}
	for what, ms := range times {
		slices.Sort(ms)
		t.Logf("%-26s %4d times: p50 %.2f ms, p99 %.2f ms, most %.2f ms", what, len(ms), ms[len(ms)/2], ms[len(ms)*99/100], ms[len(ms)-1])
	}
}

func TestRanksLeaveWhileOthersRecover(t *testing.T) {
	jobs := 5
	if n, err := strconv.Atoi(os.Getenv("TCP_TEST_JOBS")); err == nil {
		jobs = n
	}
	for range jobs {
		launch(t, "leaving", 8, "TCP_TEST_CROWDED=1")
	}
}

// A rank that is stopped is lost, and finds that out, whatever carries the frames.
func TestStoppedRankIsLostAndFindsOut(t *testing.T) {
	for _, env := range carriers {
		t.Run(env.name, func(t *testing.T) {
			t.Parallel() // it is waiting
			launch(t, "stopped", 3, slices.Concat(env.env, []string{"TCP_TEST_HEARTBEAT=2s"})...)
		})
	}
}

// carriers are ways in which the ranks of a program reach each other.
var carriers = []struct {
	name string
	env  []string
}{
	{"sockets", nil},
	{"rings", []string{"TCP_TEST_RING=4096"}},
	{"rings and exposed messages", []string{"TCP_TEST_RING=4096", "TCP_TEST_EXPOSE=1", "TCP_TEST_CROWDED=1"}},
}
