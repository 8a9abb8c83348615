package spawn

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/flight"
)

// TestKeeperLeavesFolder has a keeper with three folders: it leaves one that it is told to, and one whose files cannot be kept.
func TestKeeperLeavesFolder(t *testing.T) {
	k, err := StartKeeper()
	if err != nil {
		t.Fatal(err)
	}
	left, failed, removed, to := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for i, dir := range []string{left, failed, removed} {
		k.Folder(dir)
		k.Keep(dir, map[bool]string{false: to, true: "/dev/null/none"}[dir == failed])
		if err := os.WriteFile(filepath.Join(dir, flight.FileName(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k.Leave(left)
	k.Close()
	for path, want := range map[string]bool{
		left: true, failed: true, removed: false, filepath.Join(to, flight.FileName(0)): false, filepath.Join(to, flight.FileName(2)): true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
}

// TestStoppedKeeperEnds checks that a keeper that has been stopped does not keep its launcher from ending, and does its work.
func TestStoppedKeeperEnds(t *testing.T) {
	k, err := StartKeeper()
	if err != nil {
		t.Fatal(err)
	}
	removed := filepath.Join(t.TempDir(), "removed")
	if err := os.Mkdir(removed, 0o700); err != nil {
		t.Fatal(err)
	}
	k.Folder(removed)
	pid := k.cmd.Process.Pid
	for syscall.Kill(pid, syscall.SIGSTOP); !isStopped(pid); {
		runtime.Gosched()
	}
	closed := make(chan struct{})
	go func() {
		k.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close does not return")
	}
	if _, err := os.Stat(removed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// keptGroup starts a keeper, and a process group that it ends if this process falls silent.
func keptGroup(t *testing.T) (*Keeper, *exec.Cmd) {
	t.Helper()
	k, err := StartKeeper()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.Group(cmd.Process.Pid)
	return k, cmd
}

// TestKeeperEndsGroupsOfStoppedLauncher has a launcher fall silent whose pipe stays open, as that of a stopped process does. A
// launcher that has not begun to beat may be silent.
func TestKeeperEndsGroupsOfStoppedLauncher(t *testing.T) {
	for _, beats := range []bool{true, false} {
		k, cmd := keptGroup(t)
		if beats {
			k.Beat(1)
		}
		ended := make(chan struct{})
		go func() {
			cmd.Wait()
			close(ended)
		}()
		limit := patience
		if !beats {
			limit = 3 * BeatEvery
		}
		select {
		case <-ended:
			if !beats {
				t.Error("the keeper of a launcher that does not beat has ended the ranks")
			}
		case <-time.After(limit):
			if beats {
				t.Error("the ranks of a silent launcher run on")
			}
		}
		k.Close()
		<-ended
	}
}

// TestKeeperDoesNotWaitForZombies has a process be killed for which its parent does not wait, as init may not. A second job could
// otherwise keep its files meanwhile, and the keeper would then replace them.
func TestKeeperDoesNotWaitForZombies(t *testing.T) {
	k, cmd := keptGroup(t)
	defer cmd.Wait()
	k.Keep(t.TempDir(), t.TempDir())
	begun := time.Now()
	if k.Close(); time.Since(begun) > stuckLimit {
		t.Errorf("the keeper has ended after %v", time.Since(begun))
	}
}
