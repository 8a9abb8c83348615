//go:build unix

package spawn

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/flight"
)

// envKeeper marks a process as a Keeper.
const envKeeper = "COHORT_SPAWN_KEEPER"

// Init must be the first call in main (and TestMain) of every program that uses this
// package. In a process that was started as a Keeper it does the keeper's work and
// exits. In other processes it returns at once.
func Init() {
	if os.Getenv(envKeeper) != "1" {
		return
	}
	keep(os.Stdin, os.Stdout)
	os.Exit(0)
}

// Keeper is a process that cleans up after a killed launcher: it kills the launcher's
// process groups, saves files that are to be kept, and removes its folders. It also shows
// which signals were sent to all processes of a job (relay). A nil Keeper does nothing. Exported methods are safe for concurrent
// use.
type Keeper struct {
	mu    sync.Mutex
	pipe  io.Closer    // the keeper reads EOF when the launcher's last descriptor is closed
	notes *gob.Encoder // to it
	cmd   *exec.Cmd

	asked   int         // calls of received
	answers chan answer // to them; closed when the keeper has ended
}

// answer has the signals that the keeper has got since the answer before.
type answer struct {
	to  int // which call of received
	got []syscall.Signal
}

// StartKeeper starts a keeper. The program must call Init.
func StartKeeper() (*Keeper, error) {
	exe := "/proc/self/exe" // also right when the file has been replaced or removed
	if runtime.GOOS != "linux" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("starting the keeper: %w", err)
		}
	}
	cmd := exec.Command(exe)
	cmd.Args = []string{"(keeper)"} // without the launcher's name: pkill -f with that name hits the launcher, and not the ranks
	cmd.Dir, cmd.Env = "/", append(os.Environ(), envKeeper+"=1", "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that signals to the launcher's group or terminal do not reach it
	notes, err := cmd.StdinPipe()
	var reports io.Reader
	if err == nil {
		reports, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, syscall.EMFILE) {
		err = fmt.Errorf("%w; raise the limit of open files (ulimit -n)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("starting the keeper: %w", err)
	}
	k := &Keeper{pipe: notes, notes: gob.NewEncoder(notes), cmd: cmd, answers: make(chan answer, 1)}
	go k.read(reports)
	return k, nil
}

// read passes on what the keeper reports.
func (k *Keeper) read(reports io.Reader) {
	defer close(k.answers)
	a := answer{to: 1}
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(reports, b); err != nil {
			return
		}
		if b[0] != 0 {
			a.got = append(a.got, syscall.Signal(b[0]))
			continue
		}
		select {
		case <-k.answers: // nobody has waited for it
		default:
		}
		k.answers <- a
		a = answer{to: a.to + 1}
	}
}

// note is a message for the keeper: what one of the methods below was called with.
type note struct {
	Group, Gone             int
	Folder, Leave, From, To string
	Ask                     bool
	Beat                    int
}

// BeatEvery is the interval at which a launcher that calls Beat calls it again.
const BeatEvery = time.Second

// Beat tells the keeper that the launcher is alive. Once it has been called, the keeper acts as if the launcher had died when it
// has heard nothing for so many intervals: the launcher has been stopped.
func (k *Keeper) Beat(most int) { k.say(note{Beat: most}) }

// Group makes the keeper kill a process group if the launcher dies.
func (k *Keeper) Group(pgid int) { k.say(note{Group: pgid}) }

// GroupGone cancels Group.
func (k *Keeper) GroupGone(pgid int) { k.say(note{Gone: pgid}) }

// Folder makes the keeper remove a folder and its contents if the launcher dies.
func (k *Keeper) Folder(path string) { k.say(note{Folder: path}) }

// Leave cancels Folder, and Keep from that folder: the folder stays.
func (k *Keeper) Leave(path string) { k.say(note{Leave: path}) }

// Keep makes the keeper copy the files of one folder to another if the launcher dies, after the groups have
// ended and before folders are removed. If to is empty, it cancels an earlier Keep from that folder.
func (k *Keeper) Keep(from, to string) { k.say(note{From: from, To: to}) }

// received returns the signals that the keeper has got since the last call, nil if it has ended, or does not answer in time. Once
// it has answered, it survives all signals that passedOn lists. Calls come one at a time.
func (k *Keeper) received(limit time.Duration) []syscall.Signal {
	if k == nil {
		return nil
	}
	k.asked++
	k.say(note{Ask: true})
	for late := time.After(limit); ; {
		select {
		case a, ok := <-k.answers:
			if !ok || a.to == k.asked {
				return a.got
			}
		case <-late:
			return nil
		}
	}
}

func (k *Keeper) say(n note) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pipe != nil {
		// If the keeper was killed, this fails. The ranks still die with the launcher's
		// thread.
		_ = k.notes.Encode(n)
	}
}

// Close ends the keeper, which kills the groups and removes the folders that are still registered.
func (k *Keeper) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pipe != nil {
		k.pipe.Close()
		k.pipe = nil
		_ = k.cmd.Process.Signal(syscall.SIGCONT) // if it is stopped, it would not end
		_ = k.cmd.Wait()                          // whatever its status
	}
}

// keep is the keeper's work. It reads groups and folders until the other end of the pipe
// is closed, or too silent, and then kills and removes them. It reports the signals that it gets, one byte each, and survives them.
func keep(from io.Reader, to io.Writer) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, passedOn...)
	signal.Ignore(syscall.SIGPIPE) // the launcher may be gone when a signal is reported
	go func() {
		for s := range signals {
			n, _ := s.(syscall.Signal)
			to.Write([]byte{byte(n)}) // an error means that the launcher is gone
		}
	}()
	groups := map[int]bool{}
	var folders []string
	kept := map[string]string{} // to, by from
	notes := make(chan note)
	go func() {
		defer close(notes)
		for in := gob.NewDecoder(from); ; {
			var n note
			if in.Decode(&n) != nil {
				return
			}
			notes <- n
		}
	}()
	var beats <-chan time.Time
	for quiet, most := 0, 0; quiet <= most; {
		var n note
		select {
		case <-beats: // one, however long this process itself has been stopped
			quiet++
			continue
		case next, ok := <-notes:
			if !ok {
				quiet = most + 1
				continue
			}
			n, quiet = next, 0
		}
		switch {
		case n.Beat > 0:
			if most = n.Beat; beats == nil {
				beats = time.Tick(BeatEvery)
			}
		case n.Ask:
			signals <- syscall.Signal(0)
		case n.Group > 1:
			groups[n.Group] = true
		case n.Gone > 1:
			delete(groups, n.Gone)
		case filepath.IsAbs(n.Folder):
			folders = append(folders, n.Folder)
		case n.Leave != "":
			folders = slices.DeleteFunc(folders, func(f string) bool { return f == n.Leave })
			delete(kept, n.Leave)
		case filepath.IsAbs(n.From) && filepath.IsAbs(n.To):
			kept[n.From] = n.To
		case n.From != "":
			delete(kept, n.From)
		}
	}
	for pgid := range groups {
		syscall.Kill(-pgid, syscall.SIGKILL)
	}
	for from, to := range kept {
		awaitEnd(groups)
		if flight.Keep(from, to) != nil {
			folders = slices.DeleteFunc(folders, func(f string) bool { return f == from })
		}
	}
	for _, path := range folders {
		// A process that has been killed may write until it has really ended.
		for end := time.Now().Add(5 * time.Second); os.RemoveAll(path) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// awaitEnd waits for killed process groups to end, because they may write until then. It gives up after 5 s. It does not wait
// for zombies, which init may leave: a second job could keep its files in the same folder meanwhile.
func awaitEnd(groups map[int]bool) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		live, known := liveGroups()
		left := false
		for pgid := range groups {
			left = left || live[pgid] || !known && syscall.Kill(-pgid, 0) == nil
		}
		if !left {
			return
		}
	}
}
