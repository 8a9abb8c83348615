package tensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel/soft"
	"github.com/cohort-hpc/cohort/internal/need"
)

func init() { programs["given up"], programs["given up receive"] = givenUp, givenUpReceive }

// The memory that a collective is staged through is not used again after it was given up while the library has
// it: MPICH's call goes on in the library, and ends when the other rank comes.
func TestGivenUpKeepsMemory(t *testing.T) {
	onMPI(t, []int{2}, []string{asProgram + "=given up"})
}

func givenUp(world *cohort.Comm) error {
	l, err := newLab(world, Config{}, soft.Config{})
	if err != nil {
		return err
	}
	inPieces, err := NewComm(world, &Config{Chunk: chunkLeast})
	if err != nil {
		return err
	}
	x, err := NewOn[float64](l.devs[0], 1000)
	if err != nil {
		return err
	}
	if l.rank == 1 {
		err = world.Barrier() // rank 0 has given up
		// Both end with rank 0's call, or by rank 0's word.
		_ = cohort.Allgather(inPieces.coll, make([]length, 1), make([]length, 2))
		_ = Allreduce(l.c, x, x, Sum)
		return errors.Join(err, x.Close(), inPieces.Close(), l.c.Close())
	}
	kept := func() int {
		l.devs[0].Trim()
		return l.drv.Stats().Pinned
	}
	giveUp := func(c *Comm, want error) error {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if late := Allreduce(c.WithContext(ctx), x, x, Sum); !errors.Is(late, want) {
			return fmt.Errorf("the collective ended with %v, want %v", late, want)
		}
		return nil
	}
	// The first that the other rank does not come to is what they tell each other of it, and not the pieces.
	err = giveUp(inPieces, cohort.ErrTimeout)
	if n := kept(); n != 0 {
		err = errors.Join(err, fmt.Errorf("%d bytes are kept for a job that has not come to its pieces", n))
	}
	err = errors.Join(err, giveUp(l.c, cohort.ErrTimeout))
	first := kept()
	if strings.HasPrefix(world.Caps().Library, "MPICH") && first == 0 {
		err = errors.Join(err, errors.New("no memory is kept for the library's call"))
	}
	// The library gets nothing of those behind them.
	for _, c := range []*Comm{inPieces, l.c, l.c} {
		err = errors.Join(err, giveUp(c, cohort.ErrBroken))
	}
	if n := kept(); n != first {
		err = errors.Join(err, fmt.Errorf("%d bytes are kept after calls that the library did not get, before %d", n, first))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return world.Abort(1) // the other rank waits for this one
	}
	return errors.Join(world.Barrier(), x.Close(), inPieces.Close(), l.c.Close())
}

// A receive that the library does not take back keeps the device's memory, which nobody has any more.
func TestGivenUpKeepsDeviceMemory(t *testing.T) {
	source := filepath.Join(t.TempDir(), "cancel.c")
	tool := strings.TrimSuffix(source, ".c") + ".so"
	if err := os.WriteFile(source, []byte("int MPI_Cancel(void *request) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(need.Program(t, "gcc"), "-shared", "-fPIC", "-o", tool, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	onMPI(t, []int{2}, []string{asProgram + "=given up receive", "LD_PRELOAD=" + tool})
}

func givenUpReceive(world *cohort.Comm) error {
	l, err := newLab(world, Config{Direct: "on"}, soft.Config{HostCanRead: true})
	if err != nil {
		return err
	}
	const n = 64 << 10
	c := l.c
	if l.rank == 1 {
		// An envelope, whose payload comes when the other one has given up.
		p, err := must[int8](n).parcel()
		if err != nil {
			return err
		}
		err = errors.Join(cohort.Send(c.head, new(letter).write(&p, c.core.cfg.Chunk, 0), 0, 0), world.Barrier())
		_ = cohort.Send(c.load, make([]byte, n), 0, 0) // where this rank has not heard that it is broken
		return errors.Join(err, world.Barrier(), c.Close())
	}
	if _, err := c.Probe(1, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, _, err = RecvAlloc[int8](c.WithContext(ctx), l.devs[0], 1, 0)
	err = wants("RecvAlloc", err, cohort.ErrTimeout)
	_, _, broken := c.load.Iprobe(1, 0)
	want := 0
	if broken != nil {
		want = 1
	}
	if got := l.drv.Stats().Allocations; got != want {
		err = errors.Join(err, fmt.Errorf("%d pieces of device memory are left, want %d: %v", got, want, broken))
	}
	if strings.HasPrefix(world.Caps().Library, "MPICH") && broken == nil {
		err = errors.Join(err, errors.New("the library has taken the receive back"))
	}
	return errors.Join(err, world.Barrier(), world.Barrier(), c.Close())
}
