//go:build unix

package spawn

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// envKeeper marks a process as a Keeper.
const envKeeper = "COHORT_SPAWN_KEEPER"

// Init must be called first thing in main (and TestMain) of every program that
// uses this package: in a process that was started as a Keeper it does the
// keeper's work and exits, in others it returns at once.
func Init() {
	if os.Getenv(envKeeper) != "1" {
		return
	}
	keep(os.Stdin)
	os.Exit(0)
}

// Keeper is a process that outlives a killed launcher for as long as it takes
// to kill the process groups and remove the folders the launcher had, and to
// keep of them what was to be kept. A nil Keeper does nothing. Methods are safe for concurrent use.
type Keeper struct {
	mu   sync.Mutex
	pipe *os.File // the keeper sees its end when the launcher's last descriptor is closed
	proc *os.Process
}

// StartKeeper starts one. The program must call Init.
func StartKeeper() (*Keeper, error) {
	exe := "/proc/self/exe" // also right when the file has been replaced or removed
	if runtime.GOOS != "linux" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("starting the keeper: %w", err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("starting the keeper: %w", err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the keeper: %w", err)
	}
	defer r.Close()
	p, err := os.StartProcess(exe, []string{filepath.Base(os.Args[0]), "(keeper)"}, &os.ProcAttr{
		Dir:   "/",
		Env:   lastOfEach(append(os.Environ(), envKeeper+"=1", "GOMAXPROCS=1")),
		Files: []*os.File{r, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // what is sent to the launcher's group or terminal is not for the keeper
	})
	if errors.Is(err, syscall.EMFILE) {
		err = fmt.Errorf("%w; raise the limit of open files (ulimit -n)", err)
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("starting the keeper: %w", err)
	}
	return &Keeper{pipe: w, proc: p}, nil
}

// Group makes the keeper kill a process group should the launcher die.
func (k *Keeper) Group(pgid int) { k.say("group", strconv.Itoa(pgid)) }

// GroupGone ends Group.
func (k *Keeper) GroupGone(pgid int) { k.say("gone", strconv.Itoa(pgid)) }

// Folder makes the keeper remove a folder and all in it should the launcher die.
func (k *Keeper) Folder(path string) { k.say("folder", strconv.Quote(path)) }

// Leave ends Folder, and Keep from there: the folder stays.
func (k *Keeper) Leave(path string) { k.say("leave", strconv.Quote(path)) }

// Keep makes the keeper, should the launcher die, copy the files of a folder to another one when the groups
// have ended, and before it removes folders.
func (k *Keeper) Keep(from, to string) { k.say("keep", strconv.Quote(from)+" "+strconv.Quote(to)) }

func (k *Keeper) say(what, arg string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pipe != nil {
		// A keeper that was killed cannot be helped: the ranks still die with the
		// launcher's thread.
		io.WriteString(k.pipe, what+" "+arg+"\n")
	}
}

// Close ends the keeper. What it still had to look after it ends and removes.
func (k *Keeper) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pipe != nil {
		k.pipe.Close()
		k.pipe = nil
		k.proc.Wait()
	}
}

// keep is the keeper's work: it reads what to look after until the other end of
// the pipe is closed, and then ends it.
func keep(from io.Reader) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	groups := map[int]bool{}
	var folders []string
	var kept [][2]string // from, to
	for s := bufio.NewScanner(from); s.Scan(); {
		what, arg, _ := strings.Cut(s.Text(), " ")
		pgid, _ := strconv.Atoi(arg)
		switch {
		case what == "group" && pgid > 1:
			groups[pgid] = true
		case what == "gone":
			delete(groups, pgid)
		case what == "folder":
			if path, err := strconv.Unquote(arg); err == nil && filepath.IsAbs(path) {
				folders = append(folders, path)
			}
		case what == "leave":
			if path, err := strconv.Unquote(arg); err == nil {
				folders = slices.DeleteFunc(folders, func(f string) bool { return f == path })
				kept = slices.DeleteFunc(kept, func(k [2]string) bool { return k[0] == path })
			}
		case what == "keep":
			if from, err := strconv.QuotedPrefix(arg); err == nil {
				to, err := strconv.Unquote(strings.TrimPrefix(arg[len(from):], " "))
				from, _ = strconv.Unquote(from)
				if err == nil && filepath.IsAbs(from) && filepath.IsAbs(to) {
					kept = append(kept, [2]string{from, to})
				}
			}
		}
	}
	for pgid := range groups {
		syscall.Kill(-pgid, syscall.SIGKILL)
	}
	for _, k := range kept {
		awaitEnd(groups)
		copyFiles(k[0], k[1])
	}
	for _, path := range folders {
		// A process that has been killed may write until it has really ended.
		for end := time.Now().Add(5 * time.Second); os.RemoveAll(path) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// awaitEnd waits for process groups that have been killed to end, not for ever: until then they may write.
func awaitEnd(groups map[int]bool) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left := false
		for pgid := range groups {
			left = left || syscall.Kill(-pgid, 0) == nil
		}
		if !left {
			return
		}
	}
}

// copyFiles copies the files of a folder, if it is there, to another. One that cannot be written as a whole
// is left out: there is nobody to tell.
func copyFiles(from, to string) {
	entries, _ := os.ReadDir(from)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			continue
		}
		part := filepath.Join(to, "."+e.Name()+".part")
		if err = os.WriteFile(part, b, 0o600); err == nil {
			err = os.Rename(part, filepath.Join(to, e.Name()))
		}
		if err != nil {
			os.Remove(part)
		}
	}
}
