//go:build linux || darwin

package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
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
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

func init() {
	// One rank is stopped for longer than the heartbeat allows, and then continued.
	programs["stopped"] = func(c backend.Comm) error {
		b := &backend.Bound{Timeout: time.Minute}
		pid := make([]byte, 8)
		if c.Rank() == 2 {
			binary.LittleEndian.PutUint64(pid, uint64(os.Getpid()))
			must.OK(c.Send(b, pid, 0, 1, backend.Standard))
			must.OK(syscall.Kill(os.Getpid(), syscall.SIGSTOP))
			_, err := c.Recv(b, nil, 0, 2)
			return wantErr(err, "rank 2 was declared lost by rank ", "silent")
		}
		if c.Rank() == 0 {
			must.Get(c.Recv(b, pid, 2, 1))
			defer func() { syscall.Kill(int(binary.LittleEndian.Uint64(pid)), syscall.SIGCONT) }() // or it would stay when this fails
		}
		_, err := c.Recv(b, pid, 2, 3)
		must.OK(wantErr(err, "rank 2 (process 2 on here) was silent for 2s"))
		if lost := c.(agree.Comm).Failed(); !slices.Equal(lost, []int{2}) {
			return fmt.Errorf("%v are lost, want 2", lost)
		}
		next := must.Get(c.(agree.Comm).Acknowledge([]int{0, 1}, 1, []int{2}))
		if c.Rank() == 0 {
			must.OK(syscall.Kill(int(binary.LittleEndian.Uint64(pid)), syscall.SIGCONT))
		}
		return rounds(next, 100)
	}
	// All leave at once, and none takes another's end for a death.
	programs["leaving"] = func(c backend.Comm) error {
		must.OK(rounds(c, 3))
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
