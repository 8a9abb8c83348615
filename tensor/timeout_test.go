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
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/need"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

func init() { programs["timed out"], programs["timed out receive"] = timedOut, timedOutReceive }

// After a timeout, the library may still use the pinned memory of a collective; that memory is
// never reused. MPICH's call ends only when the other rank joins it.
func TestTimedOutCollectiveKeepsPinnedMemory(t *testing.T) {
	onMPI(t, []int{2}, []string{asProgram + "=timed out"})
}

func timedOut(world *cohort.Comm) error {
	l := must.Get(newLab(world, Config{}, soft.Config{}))
	x, err := NewOn[float64](l.devs[0], 1000)
	if err != nil {
		return err
	}
	if l.rank == 1 {
		err = world.Barrier()         // rank 0 has timed out
		_ = Allreduce(l.c, x, x, Sum) // ends with rank 0's, or because rank 0 revoked the communicator
		return errors.Join(err, x.Close(), l.c.Close())
	}
	kept := func() int {
		l.devs[0].Trim()
		return l.drv.Stats().Pinned
	}
	// timeOut calls until one call has timed out in the library: that breaks the communicator. On a loaded machine calls
	// may time out before.
	timeOut := func(c *Comm) error {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			late := Allreduce(c.WithContext(ctx), x, x, Sum)
			switch cancel(); {
			case errors.Is(late, cohort.ErrBroken):
				return nil
			case !errors.Is(late, cohort.ErrTimeout):
				return fmt.Errorf("the collective ended with %v, want %v", late, cohort.ErrTimeout)
			}
		}
	}
	err = timeOut(l.c)
	first := kept()
	if strings.HasPrefix(world.Caps().Library, "MPICH") && first == 0 {
		err = errors.Join(err, errors.New("the pinned memory of the library's call was freed"))
	}
	// Later calls do not reach the library.
	for _, c := range []*Comm{l.c, l.c} {
		if late := Allreduce(c, x, x, Sum); !errors.Is(late, cohort.ErrBroken) {
			err = errors.Join(err, fmt.Errorf("a later collective ended with %v, want %v", late, cohort.ErrBroken))
		}
	}
	if n := kept(); n != first {
		err = errors.Join(err, fmt.Errorf("%d bytes are kept after calls that did not reach the library, before %d", n, first))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return world.Abort(1) // the other rank waits for this one
	}
	return errors.Join(world.Barrier(), x.Close(), l.c.Close())
}

// Device memory of a receive that the library cannot cancel is never freed.
func TestTimedOutReceiveKeepsDeviceMemory(t *testing.T) {
	source := filepath.Join(t.TempDir(), "cancel.c")
	tool := strings.TrimSuffix(source, ".c") + ".so"
	if err := os.WriteFile(source, []byte("int MPI_Cancel(void *request) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(need.Program(t, "gcc"), "-shared", "-fPIC", "-o", tool, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	onMPI(t, []int{2}, []string{asProgram + "=timed out receive", "LD_PRELOAD=" + tool})
}

func timedOutReceive(world *cohort.Comm) error {
	l := must.Get(newLab(world, Config{Direct: "on"}, soft.Config{HostCanRead: true}))
	const n = 64 << 10
	c := l.c
	if l.rank == 1 {
		// An envelope whose payload comes after rank 0 has timed out.
		p, err := zeros[int8](n).untyped()
		if err != nil {
			return err
		}
		err = errors.Join(cohort.Send(c.head, new(envelope).write(&p, c.core.cfg.Chunk), 0, 0), world.Barrier())
		_ = cohort.Send(c.load, make([]byte, n), 0, 0) // if this rank does not yet know that the communicator is broken
		return errors.Join(err, world.Barrier(), c.Close())
	}
	must.Get(c.head.Probe(1, 0))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	none, err := NewOn[int8](l.devs[0], 0)
	if err != nil {
		return err
	}
	_, _, err = RecvAppend(c.WithContext(ctx), none, 1, 0)
	err = wantErr("RecvAppend", err, cohort.ErrTimeout)
	_, _, broken := c.load.Iprobe(1, 0)
	want := 0
	if broken != nil {
		want = 1
	}
	if got := l.drv.Stats().Allocations; got != want {
		err = errors.Join(err, fmt.Errorf("%d pieces of device memory are left, want %d: %v", got, want, broken))
	}
	if strings.HasPrefix(world.Caps().Library, "MPICH") && broken == nil {
		err = errors.Join(err, errors.New("the library has canceled the receive"))
	}
	return errors.Join(err, world.Barrier(), world.Barrier(), c.Close())
}
