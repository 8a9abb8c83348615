//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// unsupported checks that recovery fails without ULFM and that the communicator still works.
func unsupported(w *cohort.Comm) error {
	_, agree := w.Agree(1)
	_, shrink := w.Shrink()
	for op, err := range map[string]error{"agree": agree, "shrink": shrink, "revoke": w.Revoke()} {
		var o *cohort.OpError
		if !errors.Is(err, cohort.ErrNotSupported) || !errors.As(err, &o) || o.Op != op {
			return fmt.Errorf("%s: %v", op, err)
		}
		if w.Rank() == 0 {
			say("%s: %v", op, err)
		}
	}
	if lost := w.Lost(); lost != nil {
		return fmt.Errorf("lost: %v", lost)
	}
	return traffic(w, 3)
}

// TestRecoveryWithoutULFMIsNotSupported covers libraries that have no ULFM or have not switched it
// on. MPICH has the functions, but each would end the process.
func TestRecoveryWithoutULFMIsNotSupported(t *testing.T) {
	rank("without", unsupported)
	for name, libraries := range map[string]map[string]string{
		"mpich": {"MPICH ": "its ULFM functions end the process: its device is ch4:"},
		"openmpi": {
			"Open MPI v4.": "it has no ULFM (MPIX_Comm_shrink and its like), which Open MPI has from 5.0 on",
			"Open MPI v5.": "its ULFM functions are not switched on; start the program with mpirun --with-ft ulfm",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, name, 2, "without").must(t)
			for _, op := range []string{"agree:", "shrink:", "revoke:"} {
				all := e.lines(op)
				right := false
				for library, why := range libraries {
					_, rest, named := strings.Cut(strings.Join(all, "\n"), library)
					right = right || named && strings.Contains(rest, " cannot continue after a loss: "+why)
				}
				if len(all) != 1 || !right {
					t.Errorf("%s %q, want one of %q", op, all, libraries)
				}
			}
		})
	}
}

// ulfm is the variable that holds the folder of testdata/ulfm.c.
const ulfm = "ULFM_DIR"

// die makes this rank count as lost. It is killed if the library really has ULFM. Otherwise it
// waits for the job to end.
func die(w *cohort.Comm) error {
	if err := publish("lost", w.Rank()); err != nil {
		return err
	}
	if os.Getenv(realLoss) != "" {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	waitFor("survived", w.Size()-1)
	return nil
}

// realLoss is the variable that makes lost ranks die.
const realLoss = "ULFM_REAL"

// publish reports to the other ranks, without MPI, that this rank has reached a point.
func publish(what string, rank int) error {
	return os.WriteFile(filepath.Join(os.Getenv(ulfm), fmt.Sprintf("%s.%d", what, rank)), nil, 0o600)
}

// waitFor waits until that many ranks have published a point.
func waitFor(what string, ranks int) {
	for n := 0; n < ranks; time.Sleep(time.Millisecond) {
		all, _ := filepath.Glob(filepath.Join(os.Getenv(ulfm), what+".*"))
		n = len(all)
	}
}

// recovered is what the remaining ranks do after a loss.
func recovered(c *cohort.Comm, gone int) error {
	if lost := c.Lost(); !slices.Equal(lost, []int{gone}) {
		return fmt.Errorf("lost: %v, want %d", lost, gone)
	}
	if err := c.Revoke(); err != nil {
		return err
	}
	all, err := c.Agree(^(1 << c.Rank()))
	if err != nil {
		return err
	}
	want := -1
	for r := range c.Size() {
		if r != gone {
			want &^= 1 << r
		}
	}
	if all != want {
		return fmt.Errorf("agreed on %#x, want %#x", all, want)
	}
	d, err := c.Shrink()
	if err != nil {
		return err
	}
	rank := c.Rank()
	if rank > gone {
		rank--
	}
	if d.Size() != c.Size()-1 || d.Rank() != rank {
		return fmt.Errorf("rank %d of %d after the Shrink, want %d of %d", d.Rank(), d.Size(), rank, c.Size()-1)
	}
	if lost := d.Lost(); lost != nil {
		return fmt.Errorf("lost after the Shrink: %v", lost)
	}
	if err := traffic(d, 3); err != nil {
		return err
	}
	// New communicators can be made from it, with ids that are free on all ranks.
	e, err := d.Dup()
	if err != nil {
		return err
	}
	return traffic(e, 3)
}

// waits are all the ways to wait for a loss or a revocation.
var waits = map[string]func(c *cohort.Comm, gone int) error{
	"recv": func(c *cohort.Comm, gone int) error { return second(cohort.Recv(c, make([]int, 1), gone, 1)) },
	"any":  func(c *cohort.Comm, _ int) error { return second(cohort.Recv(c, make([]int, 1), cohort.AnySource, 1)) },
	"irecv": func(c *cohort.Comm, gone int) error {
		return waited(cohort.Irecv(c, make([]int, 1), gone, 1))
	},
	"test": func(c *cohort.Comm, gone int) error {
		q, err := cohort.Irecv(c, make([]int, 1), gone, 1)
		for done := false; err == nil && !done; {
			_, done, err = q.Test()
		}
		return err
	},
	"barrier":   func(c *cohort.Comm, _ int) error { return c.Barrier() },
	"allreduce": func(c *cohort.Comm, _ int) error { return second(cohort.AllreduceOne(c, 1, cohort.Sum)) },
	"limited": func(c *cohort.Comm, _ int) error {
		ctx, cancel := context.WithTimeout(background, time.Hour)
		defer cancel()
		return c.WithContext(ctx).Barrier()
	},
}

// lose loses one rank while the others wait for it.
func lose(w *cohort.Comm) error {
	c, err := w.Dup()
	if err != nil {
		return err
	}
	gone := w.Size() - 2
	if w.Rank() == gone {
		return die(w)
	}
	err = waits[os.Getenv("ULFM_WAIT")](c, gone)
	if !errors.Is(err, cohort.ErrPeerLost) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d is lost", gone)) {
		return fmt.Errorf("the wait ended with %v", err)
	}
	if err := c.Barrier(); !errors.Is(err, cohort.ErrPeerLost) {
		return fmt.Errorf("the next operation ended with %v", err)
	}
	if err := publish("waited", w.Rank()); err != nil {
		return err
	}
	waitFor("waited", w.Size()-1) // else a rank may learn of the loss by the other's Revoke
	if err := recovered(c, gone); err != nil {
		return err
	}
	return survived(w)
}

// survived reports that this rank goes on without the lost one.
func survived(w *cohort.Comm) error {
	say("survived %d", w.Rank())
	return publish("survived", w.Rank())
}

// quiet lets the remaining ranks learn of a loss from Agree, with no other operation in progress.
func quiet(w *cohort.Comm) error {
	c, err := w.Dup()
	if err != nil {
		return err
	}
	gone := w.Size() - 1
	if w.Rank() == gone {
		return die(w)
	}
	waitFor("lost", 1)
	if all, err := c.Agree(5); err != nil || all != 5 {
		return fmt.Errorf("agreed on %d, %v", all, err)
	}
	for name, wait := range waits {
		if err := wait(c, gone); !errors.Is(err, cohort.ErrPeerLost) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d is lost", gone)) {
			return fmt.Errorf("%s after the Agree: %v", name, err)
		}
	}
	if _, err := shrunk(c); err != nil {
		return err
	}
	return survived(w)
}

// shrunk shrinks a communicator and uses what it has got.
func shrunk(c *cohort.Comm) (*cohort.Comm, error) {
	d, err := c.Shrink()
	if err == nil {
		err = traffic(d, 3)
	}
	return d, err
}

// revoke lets rank 0 revoke a communicator on which the others wait for a message that never comes.
func revoke(w *cohort.Comm) error {
	c, err := w.Dup()
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		err = c.Revoke()
	} else if err = waits[os.Getenv("ULFM_WAIT")](c, 0); errors.Is(err, cohort.ErrBroken) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("the wait ended with %v", err)
	}
	if err := c.Barrier(); !errors.Is(err, cohort.ErrBroken) {
		return fmt.Errorf("the next operation ended with %v", err)
	}
	// No rank is lost: all are in the new communicator.
	d, err := shrunk(c)
	if err != nil {
		return err
	}
	return d.Close()
}

// late lets one rank call Agree and Shrink after the others have timed out.
func late(w *cohort.Comm) error {
	sync, err := w.Dup() // tells the late rank that the others have timed out
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	if w.Rank() != 0 {
		if _, err := w.WithContext(ctx).Agree(6 | w.Rank()); !errors.Is(err, cohort.ErrTimeout) {
			return fmt.Errorf("an Agree without rank 0: %v", err)
		}
		if _, err := w.Shrink(); !errors.Is(err, cohort.ErrRequest) {
			return fmt.Errorf("a Shrink in the middle of an Agree: %v", err)
		}
	}
	if err := sync.Barrier(); err != nil {
		return err
	}
	// The first call's flag counts.
	if all, err := w.Agree(map[bool]int{true: 2, false: 0}[w.Rank() == 0]); err != nil || all != 2 {
		return fmt.Errorf("agreed on %d, %v", all, err)
	}
	if w.Rank() != 0 {
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		if _, err := w.WithContext(ctx).Shrink(); !errors.Is(err, cohort.ErrTimeout) {
			return fmt.Errorf("a Shrink without rank 0: %v", err)
		}
	}
	if err := sync.Barrier(); err != nil {
		return err
	}
	d, err := shrunk(w)
	if err != nil {
		return err
	}
	// Flags are of 32 bits.
	all, err := d.Agree(-1 << 31)
	if err != nil || all != -1<<31 {
		return fmt.Errorf("agreed on %#x, %v", all, err)
	}
	if d.Rank() == 0 {
		if _, err = d.Agree(1 << 40); !errors.Is(err, cohort.ErrNotSupported) {
			return fmt.Errorf("a flag of 41 bits: %v", err)
		}
	} else if all, err = d.Agree(-1); err != nil || all != 0 {
		return fmt.Errorf("agreed on %#x, %v, want 0", all, err)
	}
	// Ranks that make different calls all get an error.
	if d.Rank() == 0 {
		_, err = d.Agree(1)
	} else {
		_, err = d.Shrink()
	}
	if !errors.Is(err, cohort.ErrMismatch) {
		return fmt.Errorf("Agree and Shrink at once: %v", err)
	}
	if err := recordedLate(w); err != nil {
		return err
	}
	return traffic(d, 3)
}

// TestRecoveryWithStandIn tests recovery on libraries without ULFM. testdata/ulfm.c stands in for
// its functions on top of Open MPI, and decides which ranks count as lost. Errors, goroutines and
// communicators are cohort's own.
func TestRecoveryWithStandIn(t *testing.T) {
	ulfmPrograms()
	launcher(t, "openmpi")
	source, err := os.ReadFile("testdata/ulfm.c")
	if err != nil {
		t.Fatal(err)
	}
	preload := "LD_PRELOAD=" + compiledC(t, mpicc(t, "openmpi"), string(source), "ulfm.so", "-shared", "-fPIC")
	run := func(t *testing.T, n int, program string, env ...string) ended {
		return start(t, "openmpi", n, program, append(env, preload, ulfm+"="+t.TempDir())...)
	}
	recovers(t, run)
	t.Run("asks", func(t *testing.T) { // for lost ranks, at most once a millisecond
		e, asked := run(t, 2, "asks").must(t), 0
		for i, word := range []string{"asked", "took"} {
			for _, line := range e.lines(word) {
				n, err := strconv.Atoi(line)
				if err != nil {
					t.Fatal(err)
				}
				asked += n * (1 - 2*i)
			}
		}
		if asked > 4 {
			t.Errorf("asked more often than once a millisecond:\n%s", e.out)
		}
	})
	t.Run("off", func(t *testing.T) {
		run(t, 2, "off", "ULFM_OFF=1").must(t).has(t, "not switched on; start the program with mpirun --with-ft ulfm")
	})
}

func ulfmPrograms() {
	for name, body := range map[string]func(*cohort.Comm) error{"lose": lose, "quiet": quiet} {
		joins(name, func(w *cohort.Comm) error {
			return body(w) // the world has lost a rank: MPI is not left
		})
	}
	rank("revoke", revoke)
	rank("late", late)
	rank("off", unsupported)
	program("asks", asks)
}

// asks probes for messages very often.
func asks() error {
	begun := time.Now()
	err := with(func(w *cohort.Comm) error {
		for range 5000 {
			if _, _, err := w.Iprobe(cohort.AnySource, 1); err != nil {
				return err
			}
		}
		return nil
	})
	say("took %d", time.Since(begun).Milliseconds())
	return err
}

// recovers runs jobs that lose a rank or revoke a communicator, and checks how the others end.
func recovers(t *testing.T, run func(t *testing.T, n int, program string, env ...string) ended) {
	lost := func(t *testing.T, program string, env ...string) {
		e := run(t, 3, program, env...)
		if got := e.lines("survived"); len(got) != 2 {
			t.Errorf("ranks %q reached the end, want two\n%s", got, e.out)
		}
	}
	for name := range waits {
		if testing.Short() && name != "irecv" && name != "barrier" {
			continue // the others wait in the same ways
		}
		t.Run("lose/"+name, func(t *testing.T) { lost(t, "lose", "ULFM_WAIT="+name) })
	}
	t.Run("lose/serialized", func(t *testing.T) { lost(t, "lose", "ULFM_WAIT=barrier", "COHORT_MPI_THREAD=serialized") })
	t.Run("quiet", func(t *testing.T) { lost(t, "quiet") })
	for _, name := range []string{"recv", "test", "barrier"} {
		if testing.Short() && name == "test" {
			continue // as irecv above
		}
		t.Run("revoke/"+name, func(t *testing.T) { run(t, 3, "revoke", "ULFM_WAIT="+name).must(t) })
	}
	t.Run("late", func(t *testing.T) { run(t, 3, "late").must(t) })
}
