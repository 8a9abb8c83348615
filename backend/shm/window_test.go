//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/leak"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// telling returns a backend.Publish over c; before and after are called around each
// exchange with its number.
func telling(c backend.Comm, b *backend.Bound, before, after func(step int)) backend.Publish {
	step := 0
	typ := &backend.Datatype{Kind: backend.Uint8, Size: 1, Name: "uint8", ID: uint32(backend.Uint8)}
	return func(mine string) ([]string, error) {
		before(step)
		all := make([]byte, c.Size()*backend.PublishSize)
		copy(all[c.Rank()*backend.PublishSize:], mine)
		call := &backend.Call{Coll: backend.Allgather, InPlace: true, Root: -1, Type: typ, Count: backend.PublishSize, Recv: all, Seq: uint32(step)}
		plan, err := c.(backend.Collectives).Collective(b, call)
		if err == nil && plan != backend.PlanDone {
			err = errors.New("the collective was not done")
		}
		after(step)
		step++
		texts := make([]string, c.Size())
		for r := range texts {
			texts[r] = strings.TrimRight(string(all[r*backend.PublishSize:(r+1)*backend.PublishSize]), "\x00")
		}
		return texts, err
	}
}

// pids returns the process numbers of all ranks.
func pids(c backend.Comm) (pids []int, err error) {
	texts, err := telling(c, nil, func(int) {}, func(int) {})(fmt.Sprint(os.Getpid()))
	for _, text := range texts {
		pid, _ := strconv.Atoi(text)
		pids = append(pids, pid)
	}
	return pids, err
}

// remains says what Share has left in this process: mappings, and descriptors more
// than before.
func remains(files int) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	if strings.Contains(string(maps), "cohort-window") {
		return errors.New("the memory is still mapped")
	}
	return leak.Above("descriptors", leak.Files, files)
}

const shareSteps = 2 // rank 0's name; all have the memory

// wherever is a rank and a moment of Share.
type wherever struct {
	rank, step int
	after      bool
}

func (w wherever) String() string {
	return fmt.Sprintf("share-killed-%d-%d-%v", w.rank, w.step, w.after)
}

func everywhere() (all []wherever) {
	for _, rank := range []int{0, 2} {
		for step := range shareSteps {
			all = append(all, wherever{rank, step, false}, wherever{rank, step, true})
		}
	}
	return all
}

func init() {
	for _, w := range everywhere() {
		programs[w.String()] = func(c backend.Comm) error {
			files := leak.Files()
			die := func(after bool) func(step int) {
				return func(step int) {
					if c.Rank() == w.rank && step == w.step && after == w.after {
						syscall.Kill(os.Getpid(), syscall.SIGKILL)
						select {}
					}
				}
			}
			mem, err := c.(backend.Sharing).Share(nil, 1<<20, telling(c, nil, die(false), die(true)))
			if w.step == shareSteps-1 && w.after && err == nil {
				// All had said that they have it.
				mem.Bytes()[c.Rank()] = 1
				err = mem.Close(nil)
				_, _, err2 := c.Probe(nil, w.rank, 1, true)
				return errors.Join(err, lost(err2, w.rank), remains(files))
			}
			return errors.Join(lost(err, w.rank), remains(files))
		}
	}

	// Rank 0 stands still after it has published the name of the memory. The deadline of the others
	// ends their wait.
	programs["share-stopped"] = func(c backend.Comm) error {
		files := leak.Files()
		pid := make([]byte, 8)
		if c.Rank() == 0 {
			copy(pid, fmt.Sprint(os.Getpid()))
			must.OK(c.Send(nil, pid, 1, 1, backend.Standard))
			_, err := c.(backend.Sharing).Share(nil, 1<<20, telling(c, nil, func(int) {}, func(step int) {
				if step == 0 {
					// Another thread may take the signal, and this one run on until then.
					again := make(chan os.Signal, 1)
					signal.Notify(again, syscall.SIGCONT)
					syscall.Kill(os.Getpid(), syscall.SIGSTOP)
					<-again
					signal.Stop(again)
				}
			}))
			if !errors.Is(err, backend.ErrTimeout) && !errors.Is(err, backend.ErrBroken) {
				return fmt.Errorf("the rank that was stopped: %v", err)
			}
			return remains(files)
		}
		must.Get(c.Recv(nil, pid, 0, 1))
		b := &backend.Bound{Timeout: 200 * time.Millisecond}
		_, err := c.(backend.Sharing).Share(b, 1<<20, telling(c, b, func(int) {}, func(int) {}))
		if !errors.Is(err, backend.ErrTimeout) {
			err = fmt.Errorf("Share with a rank that is stopped: %v", err)
		} else {
			err = remains(files)
		}
		var n int
		fmt.Sscan(strings.TrimRight(string(pid), "\x00"), &n)
		return errors.Join(err, syscall.Kill(n, syscall.SIGCONT))
	}

	// Rank 0 stands still after it has published the name of the memory, which it has not made. The others
	// lose it, as they lose a rank that is silent at any other time.
	programs["share-silent"] = func(c backend.Comm) error {
		const victim = 0
		pids, err := pids(c)
		if err != nil {
			return err
		}
		files := leak.Files()
		tell := telling(c, nil, func(int) {}, func(int) {})
		if c.Rank() == victim {
			must.Get(tell("/dev/null"))
			stopSelf()
			_, err = tell("")
			return silent(err, victim)
		}
		began := time.Now()
		_, err = c.(backend.Sharing).Share(nil, 1<<20, tell)
		if err = errors.Join(silent(err, victim), remains(files)); err != nil {
			return err
		}
		if took := time.Since(began); took > backend.JoinLimit/2 {
			return fmt.Errorf("it took %v until the rank was lost", took)
		}
		if c.Rank() == 1 {
			return syscall.Kill(pids[victim], syscall.SIGCONT)
		}
		return nil
	}

	// One rank can open no more than so many descriptors: each rank has the memory or
	// an error, none waits, and with descriptors again all have it.
	programs["share-descriptors"] = func(c backend.Comm) error {
		var old unix.Rlimit
		must.OK(unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
		files := leak.Files()
		share := func() error {
			mem, err := c.(backend.Sharing).Share(nil, 4096, telling(c, nil, func(int) {}, func(int) {}))
			if err != nil {
				return err
			}
			return mem.Close(nil)
		}
		for _, who := range []int{0, 2} {
			for spare := range 3 {
				if c.Rank() == who {
					must.OK(ranktest.LimitFiles(spare))
				}
				began := time.Now()
				err := share()
				if took := time.Since(began); took > backend.JoinLimit/2 {
					return fmt.Errorf("with %d descriptors on rank %d it took %v", spare, who, took)
				}
				if spare == 0 && (c.Rank() == who || who == 0) && err == nil {
					return fmt.Errorf("rank %d has shared memory without descriptors", who)
				}
				must.OK(unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
				must.OK(remains(files))
			}
		}
		return share()
	}
}

// TestShareWithKilledRank kills each rank at each step of Share. The others get an error and keep
// nothing of the memory.
func TestShareWithKilledRank(t *testing.T) {
	for _, w := range everywhere() {
		for rank, err := range run(t, w.String(), 3) {
			if (err == nil) == (rank == w.rank) {
				t.Errorf("%v: %v", w, err)
			}
		}
	}
}

func TestShareWithSilentRank(t *testing.T) {
	t.Setenv("SHM_TEST_HEARTBEAT", "200ms")
	launch(t, "share-silent", 3)
}

func TestShareWithStoppedRank(t *testing.T)    { launch(t, "share-stopped", 2) }
func TestShareWithoutDescriptors(t *testing.T) { launch(t, "share-descriptors", 3) }
