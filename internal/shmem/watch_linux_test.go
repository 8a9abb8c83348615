package shmem

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/test/denied"
)

// over returns the number of a process that has ended.
func over(t *testing.T) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHMEM_TEST=end")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// A watch that cannot be had reports nothing: what it would be reported to may be no more.
func TestFailedWatchReportsNothing(t *testing.T) {
	pids := map[int]int{0: over(t)}
	for id := 1; id < 8; id++ {
		pids[id] = os.Getpid()
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	room, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3) // the lowest free number
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(room)
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(room + 3), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var reports atomic.Int32
	for range 200 { // the processes come in any order
		if w, err := NewWatch(pids, func(int) { reports.Add(1) }); err == nil {
			w.Close()
			t.Fatal("seven processes are watched with three descriptors")
		}
		runtime.Gosched()
	}
	if n := reports.Load(); n != 0 {
		t.Errorf("%d ends reported by watches that were never made", n)
	}
}

// A process that had ended before is reported like the others: by one goroutine, and not after Close.
func TestWatchReportsProcessThatHadEnded(t *testing.T) {
	pids := map[int]int{}
	pid := over(t)
	for id := range 20 {
		pids[id] = pid
	}
	for range 50 {
		var inside, most, late atomic.Int32
		var closed atomic.Bool
		seen := make(chan int, len(pids))
		w, err := NewWatch(pids, func(id int) {
			if closed.Load() {
				late.Add(1)
			}
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			runtime.Gosched()
			inside.Add(-1)
			seen <- id
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[int]bool{<-seen: true}
		w.Close()
		closed.Store(true)
		runtime.Gosched()
		if most.Load() > 1 || late.Load() > 0 {
			t.Fatalf("%d reports at the same time, %d after Close", most.Load(), late.Load())
		}
		for len(seen) > 0 {
			got[<-seen] = true
		}
		if len(got) != len(pids) {
			t.Fatalf("%d of %d ends reported", len(got), len(pids))
		}
	}
}

func TestRunsFollowsSignals(t *testing.T) {
	if !Runs(os.Getpid()) {
		t.Error("this process does not run")
	}
	if n := testing.AllocsPerRun(10, func() { Runs(os.Getpid()) }); n != 0 {
		t.Errorf("asking allocates %v times", n) // while a call that waits for a silent rank allocates nothing
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	is := func(what string, want bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); Runs(cmd.Process.Pid) != want; time.Sleep(time.Millisecond) { // poll
			if time.Now().After(end) {
				t.Fatalf("a process that %s: it runs: %v", what, !want)
			}
		}
	}
	is("was started", true)
	cmd.Process.Signal(syscall.SIGSTOP)
	is("was stopped", false)
	cmd.Process.Signal(syscall.SIGCONT)
	is("goes on", true)
	cmd.Process.Kill()
	is("was killed", false) // not even before it is waited for
	cmd.Wait()
	is("has ended", false)
}

// Where pidfd_open is denied, as under older container runtimes, ends are reported all the same.
func TestWatchWithoutPidfd(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHMEM_TEST=denied")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// watchDenied denies this process pidfd_open for good, and watches three processes: one has ended, one ends, and is
// not waited for before that is reported, and one goes on.
func watchDenied() error {
	if err := denied.Syscall(unix.SYS_PIDFD_OPEN); err != nil {
		return err
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		return err
	}
	defer sleep.Wait()
	defer sleep.Process.Kill()
	seen := make(chan int, 3)
	w, err := NewWatch(map[int]int{1: sleep.Process.Pid, 2: 0x3fffff, 3: os.Getpid()}, func(id int) { seen <- id })
	if err != nil {
		return err
	}
	defer w.Close()
	if w.Polled == nil {
		return errors.New("pidfd_open is not denied")
	}
	if id := <-seen; id != 2 {
		return fmt.Errorf("process %d has ended, want 2", id)
	}
	sleep.Process.Kill()
	if id := <-seen; id != 1 {
		return fmt.Errorf("process %d has ended, want 1", id)
	}
	return nil
}

// Without pidfd_open and without a file left for /proc there is an error, and no watch to close.
func TestWatchThatCannotPollIsNone(t *testing.T) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	w := &Watch{ep: os.NewFile(uintptr(ep), "watch"), stop: make(chan struct{}), done: make(chan struct{}), Polled: unix.EPERM}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	got, err := w.polled(map[int]int{1: os.Getpid()}, func(int) {})
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); e != nil {
		t.Fatal(e)
	}
	if got != nil || err == nil {
		t.Errorf("got %v, %v, want no watch and an error", got, err)
	}
}

// A process without a free descriptor cannot ask the system. It does not take a process that runs for one that has ended.
func TestProcessRunsWhenNoDescriptorIsLeft(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	runs := Runs(os.Getpid())
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !runs {
		t.Error("this process has ended")
	}
}
